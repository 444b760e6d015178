#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "services/base/bounded_queue.h"

namespace dex::base {

// A fixed number of threads and a bounded queue of tasks before them. A task that throws ends the
// process: tasks handle their errors. Thread-safe.
class ThreadPool {
 public:
  struct Options {
    size_t threads = 4;
    size_t queue_capacity = 1024;
    std::string name = "pool";  // shown by ps and gdb, 15 characters
  };
  explicit ThreadPool(const Options& options);
  ~ThreadPool();  // as close()

  // False when the queue is full or the pool ends: the caller says "busy". Never blocks.
  bool try_post(std::function<void()> task);
  [[nodiscard]] size_t queued() const { return tasks_.size(); }
  // Takes nothing more, runs what is queued and joins. May be called again, by one thread at a
  // time and by no task.
  void close();

 private:
  void run(const std::string& name);

  BoundedQueue<std::function<void()>> tasks_;
  std::vector<std::jthread> threads_;
};

}  // namespace dex::base
