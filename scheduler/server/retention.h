#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <thread>

#include "scheduler/server/data_layout.h"
#include "scheduler/server/job_events.h"
#include "scheduler/store/adapter_repository.h"
#include "scheduler/store/job_repository.h"
#include "services/base/clock.h"
#include "services/base/status.h"

namespace dex::server {

// What becomes of ended jobs of every tenant and kind: a minute after their end their events go to
// events.jsonl, after `keep_ms` record and files go, and so do those of a delete that was
// interrupted. A published adapter stays. One thread; the destructor joins. Every replica has one,
// and one of them works at a time (a lock in the data directory).
class Retention {
 public:
  struct Parts {  // all outlive this object
    store::JobRepository& jobs;
    store::AdapterRepository& adapters;
    JobEvents& events;
    const DataLayout& layout;
    const base::Clock& clock;
  };
  struct Options {
    int64_t keep_ms = int64_t{30} * 24 * 3600 * 1000;  // at least a day
    int64_t period_ms = 30'000;                        // between two looks for ended jobs
    int64_t archive_after_ms = 60'000;                 // who watches the end has seen it by then
    int64_t purge_period_ms = 3600'000;
  };
  Retention(const Parts& parts, const Options& options);
  ~Retention();  // as stop()

  void request_stop();  // returns at once
  void stop();          // and waits for the thread

 private:
  void run(const std::stop_token& stop);
  // UNAVAILABLE: the store is away, or another replica is at it.
  base::Status look(const std::stop_token& stop);
  base::Status archive_ended(const std::stop_token& stop);
  base::Status purge_old(const std::stop_token& stop);
  base::Status purge(const store::JobRepository::FinishedJob& job);

  const Parts parts_;
  const Options options_;
  // The thread's own: behind which job archive_ended() goes on, and when purge_old() comes.
  int64_t cursor_ms_ = -1;
  std::string cursor_id_;
  int64_t next_purge_ms_ = 0;  // steady
  std::jthread thread_;
};

}  // namespace dex::server
