#include "services/base/signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>

namespace dex::base {

StopSignals::StopSignals() {
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

StopSignals::~StopSignals() {
  thread_.request_stop();
  const uint64_t one = 1;
  [[maybe_unused]] const auto put = ::write(wake_.get(), &one, sizeof one);
}

void StopSignals::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    pollfd entries[2] = {{signals_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    poll(entries, 2, -1);
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      if (!first_.request_stop()) second_.request_stop();
    }
  }
}

bool StopSignals::wait(int64_t timeout_ms) const {
  return wait_for_stop(first_.get_token(), timeout_ms);
}

bool wait_for_stop(const std::stop_token& token, int64_t timeout_ms) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  const auto never = [] { return false; };
  if (timeout_ms < 0) {
    changed.wait(lock, token, never);
  } else {
    changed.wait_for(lock, token, std::chrono::milliseconds(timeout_ms), never);
  }
  return token.stop_requested();
}

}  // namespace dex::base
