#include "scheduler/store/redis.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace dex::store {

namespace {
using SteadyClock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kFirstPause{10};
constexpr std::chrono::milliseconds kLongestPause{250};

base::Status unavailable(const std::string& message) {
  return base::unavailable("STORE_UNAVAILABLE", message);
}
}  // namespace

Redis::Redis(Options options) : options_(std::move(options)) {}

base::Result<Reply> Redis::command(const std::vector<std::string>& args) {
  return repeat(args.front(), args, nullptr);
}

base::Result<Reply> Redis::run(const Script& script, const std::string& prefix,
                               const std::vector<std::string>& args) {
  std::vector<std::string> words = {"EVALSHA", script.sha1, "1", prefix};
  words.insert(words.end(), args.begin(), args.end());
  return repeat(script.name, words, &script);
}

base::Result<Reply> Redis::repeat(std::string_view name, const std::vector<std::string>& args,
                                  const Script* script) {
  const auto start = SteadyClock::now();
  const auto until = start + options_.patience;
  const auto observe = [&](std::string_view error) {
    if (!options_.observe) return;
    const std::chrono::duration<double> seconds = SteadyClock::now() - start;
    options_.observe(name, seconds.count(), error);
  };
  std::string last;
  auto wait = kFirstPause;
  do {
    auto connection = acquire(until);
    if (!connection.ok()) {
      if (connection.status().code() != base::Code::kUnavailable) return connection.status();
      last = connection.status().message();
      observe(store::name(ErrorClass::kIo));
      wait = std::min(wait * 2, kLongestPause);
      continue;
    }
    Answer answer = (*connection)->call(args);
    if (!answer.ok && answer.error == ErrorClass::kNoScript && script != nullptr) {
      answer = (*connection)->call({"SCRIPT", "LOAD", script->text});
      if (answer.ok) answer = (*connection)->call(args);
    }
    const bool lost = !answer.ok && answer.error == ErrorClass::kIo;
    release(lost ? nullptr : std::move(connection).value());
    observe(answer.ok ? "" : store::name(answer.error));
    if (answer.ok) return std::move(answer.reply);
    last = answer.message;
    if (answer.error == ErrorClass::kForbidden) {
      return base::failed_precondition("STORE_REFUSED",
                                       "Redis refused " + std::string(name) + ": " + last);
    }
    if (answer.error == ErrorClass::kOther) {
      spdlog::error("redis: {} failed: {}", name, last);
      return base::internal("The store failed in '" + std::string(name) + "'.");
    }
    wait = std::min(wait * 2, kLongestPause);
  } while (pause(wait, until));
  return unavailable("The store does not answer: " + last);
}

base::Result<std::unique_ptr<Connection>> Redis::acquire(SteadyClock::time_point until) {
  {
    std::unique_lock lock(mutex_);
    const bool free = changed_.wait_until(
        lock, until, [&] { return closed_ || !idle_.empty() || open_ < options_.connections; });
    if (closed_) return unavailable("The store is closed.");
    if (!free) return unavailable("All connections to the store are in use.");
    if (!idle_.empty()) {
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
    ++open_;
  }
  auto made = Connection::connect(options_.address, options_.command_timeout);
  if (made.ok() && options_.on_connect) {
    if (auto status = options_.on_connect(**made); !status.ok()) made = status;
  }
  if (!made.ok()) release(nullptr);
  return made;
}

void Redis::release(std::unique_ptr<Connection> connection) {
  {
    const std::lock_guard lock(mutex_);
    if (connection != nullptr && !closed_) {
      idle_.push_back(std::move(connection));
    } else {
      --open_;
      // The others are as old: after a restart of Redis each would fail once more, so they go too.
      if (connection == nullptr) {
        open_ -= idle_.size();
        idle_.clear();
      }
    }
  }
  changed_.notify_all();
}

void Redis::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    open_ -= idle_.size();
    idle_.clear();
  }
  changed_.notify_all();
}

bool Redis::pause(std::chrono::milliseconds time, SteadyClock::time_point until) {
  std::unique_lock lock(mutex_);
  const auto wake = SteadyClock::now() + time;
  if (closed_ || wake >= until) return false;
  changed_.wait_until(lock, wake, [&] { return closed_; });
  return !closed_;
}

}  // namespace dex::store
