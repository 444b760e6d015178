#pragma once

#include <functional>
#include <mutex>
#include <thread>

#include "scheduler/server/metrics.h"
#include "scheduler/store/reconciler.h"
#include "scheduler/store/store.h"
#include "services/base/clock.h"
#include "services/base/status.h"

namespace dex::server {

// Does what time alone demands: sweeps, counts, checks that Redis is durable, reconciles at the
// start and every hour, in parts between the sweeps. One thread; the destructor joins. Every
// replica has one.
class Sweeper {
 public:
  struct Options {
    int64_t sweep_ms = 5000;
    int64_t retry_ms = 1000;  // after a sweep that got no answer
    int64_t check_ms = 60'000;
    int64_t reconcile_ms = 3600'000;
    std::function<void()> changed;  // jobs became READY or terminal
  };
  // All outlive this object.
  Sweeper(store::Store& store, Metrics& metrics, const base::Clock& clock, Options options);
  ~Sweeper();

  // OK while the store answers and keeps what it acknowledges; else why not. Never blocks.
  [[nodiscard]] base::Status health() const;
  void request_stop();  // returns at once
  void stop();          // and waits for the thread

 private:
  void run(const std::stop_token& stop);
  base::Status sweep();
  base::Status check();
  void reconcile(const std::stop_token& stop);
  void set_health(base::Status status);

  store::Store& store_;
  Metrics& metrics_;
  const base::Clock& clock_;
  const Options options_;
  int64_t next_check_ms_ = 0;  // steady; the thread's own, as all up to mutex_
  int64_t next_reconcile_ms_ = 0;
  store::Reconciler reconciler_;
  bool reconciling_ = false;    // it is under way
  bool reconcile_due_ = false;  // once more, whatever the time
  mutable std::mutex mutex_;
  base::Status health_;  // guarded by mutex_
  std::jthread thread_;
};

}  // namespace dex::server
