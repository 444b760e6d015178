#include "scheduler/server/waiters.h"

#include <algorithm>
#include <iterator>

namespace dex::server {

Waiters::Waiters(std::chrono::milliseconds period)
    : period_(period), thread_([this](const std::stop_token& stop) { run(stop); }) {}

Waiters::~Waiters() {
  close();
}

void Waiters::close() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  looks_.clear();
}

void Waiters::add(Look look) {
  {
    const std::lock_guard lock(mutex_);
    if (thread_.get_stop_token().stop_requested()) return;
    looks_.push_back(std::move(look));
    woken_ = true;
  }
  changed_.notify_all();
}

void Waiters::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

size_t Waiters::waiting() const {
  const std::lock_guard lock(mutex_);
  return looks_.size() + looking_;
}

void Waiters::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (looks_.empty()) {
      changed_.wait(lock, stop, [this] { return !looks_.empty(); });
    } else {
      changed_.wait_for(lock, stop, period_, [this] { return woken_; });
    }
    if (stop.stop_requested()) break;
    woken_ = false;
    std::vector<Look> asked = std::move(looks_);
    looks_.clear();
    looking_ = asked.size();
    lock.unlock();
    const auto began = std::chrono::steady_clock::now();
    // What arrives or is woken meanwhile is looked at in the next round.
    std::vector<Look> left;
    for (Look& look : asked) {
      if (stop.stop_requested() || !look()) left.push_back(std::move(look));
    }
    asked.clear();  // lets go of what the finished ones held, outside the lock
    lock.lock();
    looking_ = 0;
    looks_.insert(looks_.begin(), std::make_move_iterator(left.begin()),
                  std::make_move_iterator(left.end()));
    const auto rest = std::min<std::chrono::steady_clock::duration>(
        std::chrono::steady_clock::now() - began, period_);
    changed_.wait_for(lock, stop, rest, [] { return false; });
  }
}

}  // namespace dex::server
