#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace dex::server {

// Calls that wait for something to change: long polls, watches. One thread asks each of them to
// look again when wake() was called, and once every `period` as long as anybody waits, because
// another replica may have made the change. With nobody waiting it sleeps. After a round it rests
// as long as the round took, at most `period`: a thousand wakes a second are not a thousand rounds.
// Thread-safe; the destructor joins.
class Waiters {
 public:
  // True: done, forget me. Runs on the thread of this object, one at a time; may call the store.
  using Look = std::function<bool()>;

  explicit Waiters(std::chrono::milliseconds period);
  ~Waiters();

  void add(Look look);  // looks for the first time soon
  void wake();
  [[nodiscard]] size_t waiting() const;
  // Ends the thread; later adds are dropped. The destructor calls it.
  void close();

 private:
  void run(const std::stop_token& stop);

  const std::chrono::milliseconds period_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Look> looks_;  // guarded by mutex_
  bool woken_ = false;       // guarded by mutex_
  size_t looking_ = 0;       // guarded by mutex_: those that are being asked right now
  std::jthread thread_;
};

}  // namespace dex::server
