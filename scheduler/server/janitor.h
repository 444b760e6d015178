#pragma once

#include <stop_token>
#include <thread>

#include "scheduler/server/blob_store.h"
#include "scheduler/server/data_layout.h"
#include "scheduler/store/file_repository.h"
#include "scheduler/store/job_repository.h"
#include "services/base/clock.h"
#include "services/base/status.h"

namespace dex::server {

// Tidies the data directory at the start and then once a day: bytes and records of files agree
// again (BlobStore::recover), dead uploads and needless attempts go (leftovers.h). A thread of its
// own: a walk over many files must not keep the sweeper from leases. Every replica has one.
class Janitor {
 public:
  struct Parts {  // all outlive this object
    BlobStore& blobs;
    store::FileRepository& files;
    store::JobRepository& jobs;
    const DataLayout& layout;
    const base::Clock& clock;
  };
  struct Options {
    int64_t period_ms = int64_t{24} * 3600 * 1000;
    int64_t retry_ms = 10'000;  // after a round that failed: the store may be away
  };
  Janitor(const Parts& parts, Options options);
  ~Janitor();  // as stop()

  void request_stop();  // returns at once
  void stop();          // and waits for the thread

 private:
  void run(const std::stop_token& stop);
  base::Status tidy(const std::stop_token& stop);

  const Parts parts_;
  const Options options_;
  std::jthread thread_;
};

}  // namespace dex::server
