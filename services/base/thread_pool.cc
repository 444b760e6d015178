#include "services/base/thread_pool.h"

#include <pthread.h>

namespace dex::base {

ThreadPool::ThreadPool(const Options& options) : tasks_(options.queue_capacity) {
  for (size_t i = 0; i < options.threads; ++i) {
    threads_.emplace_back([this, name = options.name.substr(0, 15)] { run(name); });
  }
}

ThreadPool::~ThreadPool() {
  close();
}

void ThreadPool::close() {
  tasks_.close();
  threads_.clear();  // jthread joins
}

bool ThreadPool::try_post(std::function<void()> task) {
  return tasks_.try_push(std::move(task));
}

void ThreadPool::run(const std::string& name) {
  pthread_setname_np(pthread_self(), name.c_str());
  while (true) {
    auto task = tasks_.pop(60'000);
    if (task) {
      (*task)();
    } else if (tasks_.closed()) {
      return;
    }
  }
}

}  // namespace dex::base
