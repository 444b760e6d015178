#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "services/base/clock.h"
#include "services/base/signals.h"
#include "tests/e2e/chaos/calls.h"
#include "tests/support/eventually.h"

namespace dex::support {

// Asks models in turn, one short stream after the other on each of four threads, and notes what
// fails. With a little rest in between: a fake engine answers at once, and four clients that do
// nothing else would take the machine from those whose times are measured.
class SteadyStreams {
 public:
  SteadyStreams(std::string server, std::vector<std::string> models)
      : server_(std::move(server)), models_(std::move(models)) {
    for (size_t i = 0; i < 4; ++i) {
      threads_.emplace_back([this, i](const std::stop_token& stop) { run(i, stop); });
    }
  }
  // Streams that came to their end.
  [[nodiscard]] int whole() const { return whole_; }
  // Some more have, from now on: generations are answered.
  [[nodiscard]] bool go_on(int64_t limit_ms = kPatience_ms) const {
    const int before = whole_;
    return eventually([&] { return whole_ >= before + 4; }, limit_ms);
  }
  // How those that failed ended.
  std::vector<std::string> finish() {
    for (auto& thread : threads_) thread.request_stop();
    threads_.clear();
    return failures_;
  }

 private:
  static constexpr int64_t kRest_ms = 30;

  void run(size_t i, const std::stop_token& stop) {
    const auto stub = v1::InferenceService::NewStub(rpc::channel(server_));
    auto request = generation(models_[i % models_.size()], 24);
    request.set_prompt("count 24");  // a fake engine ends after as many tokens as a real one
    while (!stop.stop_requested()) {
      grpc::ClientContext context;
      rpc::set_timeout(context, std::chrono::seconds(60));
      const auto reader = stub->GenerateStream(&context, request);
      v1::GenerateStreamResponse message;
      bool finished = false;
      while (reader->Read(&message)) finished = finished || message.has_finish();
      const auto status = rpc::from_grpc(reader->Finish());
      if (status.ok() && finished) {
        ++whole_;
      } else {
        const std::lock_guard lock(mutex_);
        failures_.push_back(status.to_string());
      }
      base::wait_for_stop(stop, kRest_ms);
    }
  }

  const std::string server_;
  const std::vector<std::string> models_;
  std::atomic<int> whole_ = 0;
  std::mutex mutex_;
  std::vector<std::string> failures_;  // guarded by mutex_
  std::vector<std::jthread> threads_;
};

// Streams that are all open at the same time, and when and why each ended.
class OpenStreams {
 public:
  OpenStreams(const std::string& server, const std::string& model, size_t count) : ends_(count) {
    for (size_t i = 0; i < count; ++i) {
      threads_.emplace_back([this, server, model, i] { run(server, model, ends_[i]); });
    }
  }
  struct End {
    base::Status status;
    int64_t at_ms = 0;  // steady clock
  };
  // Every one of them has had a token.
  bool open() {
    return eventually([this] { return begun_ == static_cast<int>(threads_.size()); });
  }
  const std::vector<End>& ends() {
    threads_.clear();
    return ends_;
  }

 private:
  void run(const std::string& server, const std::string& model, End& end) {
    const auto stub = v1::InferenceService::NewStub(rpc::channel(server));
    grpc::ClientContext context;
    rpc::set_timeout(context, std::chrono::seconds(120));
    const auto reader = stub->GenerateStream(&context, generation(model, 900));
    v1::GenerateStreamResponse message;
    bool begun = false;
    while (reader->Read(&message)) {
      if (!begun && message.has_delta()) ++begun_;
      begun = begun || message.has_delta();
    }
    end.status = rpc::from_grpc(reader->Finish());
    end.at_ms = base::SystemClock().steady_ms();
  }

  std::atomic<int> begun_ = 0;
  std::vector<End> ends_;
  std::vector<std::jthread> threads_;
};

}  // namespace dex::support
