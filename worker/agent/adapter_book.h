#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "dex/internal/v1/frames.pb.h"
#include "dex/internal/v1/worker.pb.h"
#include "services/base/status.h"

namespace dex::agent {

namespace iv1 = dex::internal::v1;

// Which adapters an engine should hold, which it says it holds, and who waits for one. Functions
// return the frames that must now be sent to the engine; waiters are called outside the lock.
// Thread-safe.
class AdapterBook {
 public:
  using Frames = std::vector<iv1::EngineCommand>;
  using Ready = std::function<void(const base::Status&)>;

  // The scheduler's whole list for this base. Paths are absolute. What is no longer in it is
  // unloaded.
  Frames set_desired(const std::vector<iv1::DesiredAdapter>& desired);
  // A fresh engine holds nothing: everything again.
  Frames engine_started();
  // Waiters fail UNAVAILABLE ENGINE_LOST.
  void engine_lost();
  void reported(const iv1::EngineReport::AdapterState& state);

  // `ready` is called once: at once when the adapter is loaded, else when the engine has loaded it
  // or cannot. With a path an unknown adapter is loaded on first use; without one it is refused
  // with UNAVAILABLE ADAPTER_LOADING, since the scheduler's list may name it soon.
  Frames want(const iv1::DesiredAdapter& adapter, Ready ready);

  [[nodiscard]] std::vector<iv1::AdapterStatus> status() const;

 private:
  struct Entry {
    iv1::DesiredAdapter what;
    bool desired = false;  // by the scheduler; else loaded on first use
    iv1::AdapterStatus status;
    std::vector<Ready> waiters;
  };
  static iv1::EngineCommand set_adapter(const iv1::DesiredAdapter& what, bool present);
  Entry& load(const iv1::DesiredAdapter& what, Frames& frames);

  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;  // guarded by mutex_
};

}  // namespace dex::agent
