#include "services/rpc/timer.h"

namespace dex::rpc {

Timer::Timer() : thread_([this](const std::stop_token& stop) { work(stop); }) {}

Timer::~Timer() {
  thread_.request_stop();
  thread_.join();
}

Timer::Ticket Timer::at(Time when, std::function<void()> function) {
  Ticket ticket;
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    ticket = {when, next_++};
    waiting_.emplace(ticket, std::move(function));
    first = waiting_.begin()->first == ticket;
  }
  if (first) wake_.notify_one();
  return ticket;
}

void Timer::cancel(const Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  waiting_.erase(ticket);
}

void Timer::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (waiting_.empty()) {
      wake_.wait(lock, stop, [this] { return !waiting_.empty(); });
      continue;
    }
    const Time due = waiting_.begin()->first.first;
    if (std::chrono::steady_clock::now() < due) {
      // Woken early by an earlier function or by stop; the loop looks again.
      wake_.wait_until(lock, stop, due,
                       [&] { return waiting_.empty() || waiting_.begin()->first.first < due; });
      continue;
    }
    const auto function = std::move(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    lock.unlock();
    function();
    lock.lock();
  }
}

}  // namespace dex::rpc
