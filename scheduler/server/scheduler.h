#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "scheduler/core/estimate.h"
#include "scheduler/store/connection.h"
#include "scheduler/store/store.h"
#include "services/base/status.h"

namespace dex::server {

struct SchedulerOptions {
  store::RedisAddress redis;
  std::filesystem::path data_dir;              // shared with the workers
  std::filesystem::path models_file;           // models.json
  std::string listen = "127.0.0.1:0";          // for gateways; port 0: any
  std::string worker_listen = "127.0.0.1:0";   // for workers
  std::string metrics_listen = "127.0.0.1:0";  // /metrics, /healthz, /readyz
  std::filesystem::path endpoints_file;        // written once all listen; empty: none
  store::StoreTimes times;
  int64_t sweep_ms = 5000;
  int64_t beat_ms = 5000;  // what a job shows is as old at most, and api.md (C26) allows 10 s
  int64_t watch_ms = 250;  // how soon a change made by another replica is seen
  // Of ended jobs and evaluations: record, events and files, not adapters. At least a day.
  int64_t retention_ms = int64_t{30} * 24 * 3600 * 1000;
  int64_t archive_after_ms = 60'000;  // until the events of an ended job leave the store
  std::chrono::milliseconds store_patience{3000};
  core::DeviceFacts device;
  // The operator's API key, with every scope; its hash is stored if it is not there. Empty: none.
  std::string admin_key;
};

// One replica of the scheduler: its servers, its sweeper, its watches. Any number may run on one
// Redis and one data directory. Listens when it is made, whether Redis is there or not; /readyz
// tells.
class Scheduler {
 public:
  static base::Result<std::unique_ptr<Scheduler>> start(const SchedulerOptions& options);
  ~Scheduler();  // as stop()
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  [[nodiscard]] const std::string& grpc_address() const;
  [[nodiscard]] const std::string& worker_address() const;
  [[nodiscard]] std::string metrics_address() const;
  [[nodiscard]] base::Status ready() const;  // what /readyz says

  // Ends in the order of jobs.md §9, drain: first of all both doors' health and /readyz say that it
  // serves no more. Blocks at most about `grace`. May be called again.
  void stop(std::chrono::milliseconds grace = std::chrono::seconds(10));

 private:
  struct Parts;  // everything it is made of, in the order of its making
  explicit Scheduler(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace dex::server
