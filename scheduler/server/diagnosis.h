#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dex/v1/admin.pb.h"
#include "dex/v1/models.pb.h"
#include "scheduler/server/data_layout.h"
#include "scheduler/server/model_catalog.h"
#include "scheduler/store/store_facts.h"
#include "scheduler/store/worker_repository.h"
#include "services/auth/principal.h"
#include "services/base/clock.h"
#include "services/base/status.h"

namespace dex::server {

// What was seen of a platform at one moment.
struct Observed {
  base::Result<store::StoreFacts> store = base::internal("not looked at");
  int64_t now_ms = 0;  // this process's clock when the store told its own
  base::Result<int64_t> free_bytes = base::internal("not looked at");  // of the data directory
  double free_ratio = 1;
  double store_free_ratio = 1;  // of the disk of the store's file, where it is on this machine
  std::vector<store::WorkerRecord> workers;  // up or draining
  std::vector<store::Store::PoolStats> pools;
  std::vector<v1::Model> models;
  std::string version;  // of this scheduler
};

// What is well and what is not, and what this setting can promise. Pure.
v1::Health diagnose(const Observed& observed);

// Looks and diagnoses (AdminService.GetHealth). Waits for a few round trips of the store, or until
// its patience is over. Thread-safe.
class Diagnosis {
 public:
  struct Parts {  // all outlive this object
    store::Store& store;
    store::WorkerRepository& workers;
    const ModelCatalog& models;
    const DataLayout& layout;
    const base::Clock& clock;
  };
  explicit Diagnosis(const Parts& parts) : parts_(parts) {}

  // Answers also when the store is away.
  base::Result<v1::Health> health(const auth::Principal& who);

 private:
  Observed look();

  const Parts parts_;
};

}  // namespace dex::server
