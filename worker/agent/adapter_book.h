#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dex/internal/v1/frames.pb.h"
#include "dex/internal/v1/worker.pb.h"
#include "services/base/status.h"

namespace dex::agent {

namespace iv1 = dex::internal::v1;

// Which adapters an engine should hold, which it says it holds, and who waits for one. Where the
// engine has no room for another, those leave that were loaded on first use: the least recently
// used first, never one with requests and never one that the scheduler's list names. Functions
// return the frames that must now be sent to the engine; waiters are called outside the lock.
// Thread-safe.
class AdapterBook {
 public:
  using Frames = std::vector<iv1::EngineCommand>;
  using Ready = std::function<void(const base::Status&)>;
  // Whether any request of that adapter is open, from before its want() on. Called with this
  // object's lock held: never calls back.
  using InUse = std::function<bool(const std::string& id)>;
  explicit AdapterBook(InUse in_use) : in_use_(std::move(in_use)) {}

  // The scheduler's whole list for this base. Paths are absolute. What is no longer in it is
  // unloaded.
  Frames set_desired(const std::vector<iv1::DesiredAdapter>& desired);
  // A fresh engine holds nothing: everything again.
  Frames engine_started();
  // Waiters fail UNAVAILABLE ENGINE_LOST.
  void engine_lost();
  Frames reported(const iv1::EngineReport::AdapterState& state);

  // What it used may leave now, if one that the scheduler's list names found no room.
  Frames request_ended();

  // `ready` is called once: at once when the adapter is loaded, else when the engine has loaded it
  // or cannot: FAILED_PRECONDITION ADAPTER_MISMATCH, or RESOURCE_EXHAUSTED ADAPTER_SLOTS_FULL where
  // nothing may leave for it. With a path an unknown adapter is loaded on first use; without one it
  // is refused with UNAVAILABLE ADAPTER_LOADING, since the scheduler's list may name it soon.
  Frames want(const iv1::DesiredAdapter& adapter, Ready ready);

  [[nodiscard]] std::vector<iv1::AdapterStatus> status() const;

 private:
  struct Entry {
    iv1::DesiredAdapter what;
    bool desired = false;    // by the scheduler; else loaded on first use
    bool leaving = false;    // the engine was told to let it go and has not said that it is gone
    bool roomless = false;   // the engine had no room for it; it tries again when one has gone
    uint64_t last_used = 0;  // the number of the newest want() of it
    iv1::AdapterStatus status;
    std::vector<Ready> waiters;
  };
  static iv1::EngineCommand set_adapter(const iv1::DesiredAdapter& what, bool present);
  // All of these are called with mutex_ held.
  Entry& load(const iv1::DesiredAdapter& what, Frames& frames);
  static iv1::EngineCommand let_go(Entry& entry);
  // One has been unloaded: what waited for that, or for room, is loaded.
  void load_waiting(Frames& frames);
  // The engine has no room for it. False: nothing may leave, and nothing is about to.
  bool make_room(Entry& entry, Frames& frames);

  const InUse in_use_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;  // guarded by mutex_
  uint64_t uses_ = 0;                     // guarded by mutex_
};

}  // namespace dex::agent
