#pragma once

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <stop_token>
#include <vector>

#include "dex/internal/v1/worker.pb.h"
#include "services/base/clock.h"
#include "worker/agent/attempt_list.h"
#include "worker/agent/metrics.h"
#include "worker/agent/scheduler_client.h"

namespace dex::agent {

// Registers the worker and then says every beat that it lives: one call for the worker, all its
// attempts and its engines. Without an answer it is repeated every retry_ms, the attempts go on.
// Never waits for a trainer or an engine. run() belongs to one thread, the rest is thread-safe.
class Heartbeat {
 public:
  struct Options {
    iv1::RegisterRequest identity;
    std::filesystem::path data_dir;  // whose free space is reported
    int64_t beat_ms = 0;             // 0: what the scheduler says at Register; never over lease / 3
    int64_t retry_ms = 2'000;
  };
  // What the engines have to say, and where their orders go. Must not block.
  struct Engines {
    std::function<std::vector<iv1::EngineStatus>()> status;
    std::function<void(const google::protobuf::RepeatedPtrField<iv1::DesiredAdapter>&)> set_desired;
  };

  // client, attempts, metrics and clock outlive this object.
  Heartbeat(Options options, SchedulerClient& client, AttemptList& attempts, Engines engines,
            WorkerMetrics& metrics, const base::Clock& clock);

  void run(const std::stop_token& stop);

  // The next beat is sent at once.
  void poke();
  // The scheduler does not know this worker: it is registered again first.
  void forget_registration();
  [[nodiscard]] bool registered() const { return registered_; }
  // The scheduler has been told that every engine serves: gateways can route to them.
  [[nodiscard]] bool engines_announced() const { return engines_announced_; }
  // The scheduler wants no more claims from this worker.
  [[nodiscard]] bool told_to_drain() const { return told_to_drain_; }
  [[nodiscard]] int64_t lease_ms() const { return lease_ms_; }

 private:
  bool register_once();
  bool beat_once();
  void apply(const iv1::HeartbeatRequest& request, const iv1::HeartbeatResponse& response,
             int64_t sent_ms);
  void wait(int64_t ms, const std::stop_token& stop);

  const Options options_;
  SchedulerClient& client_;
  AttemptList& attempts_;
  const Engines engines_;
  WorkerMetrics& metrics_;
  const base::Clock& clock_;

  std::atomic<bool> registered_ = false;
  std::atomic<bool> engines_announced_ = false;
  std::atomic<bool> told_to_drain_ = false;
  std::atomic<int64_t> lease_ms_ = 30'000;
  int64_t beat_ms_ = 5'000;       // of run()'s thread
  int64_t desired_revision_ = 0;  // of run()'s thread
  bool complained_ = false;       // of run()'s thread: an outage is logged once

  std::mutex mutex_;
  std::condition_variable_any poked_;
  bool poke_ = false;  // guarded by mutex_
};

}  // namespace dex::agent
