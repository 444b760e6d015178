#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace dex::rpc {

// One thread that calls functions at given times: deadline caps and heartbeats. The functions run
// on that thread and must be short. Thread-safe; the destructor drops what is still waiting and
// joins.
class Timer {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Ticket = std::pair<Time, uint64_t>;

  Timer();
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  Ticket at(Time when, std::function<void()> function);
  // Drops a waiting function. One that is just running is not waited for.
  void cancel(const Ticket& ticket);

 private:
  void work(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::map<Ticket, std::function<void()>> waiting_;  // guarded by mutex_, earliest first
  uint64_t next_ = 0;                                // guarded by mutex_
  std::jthread thread_;
};

}  // namespace dex::rpc
