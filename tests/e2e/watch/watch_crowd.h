#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "dex/v1/finetuning.grpc.pb.h"
#include "services/base/clock.h"

namespace dex::support {

// Thousands of watches of one job through one gateway, without a thread for each. Each does what
// dex::client::Client::watch_job does: when its stream ends early it comes back, later each time,
// and asks for what follows the last event it has seen.
class WatchCrowd {
 public:
  // All watches have been sent off when it is made. A gateway takes 128 of them on one channel.
  WatchCrowd(const std::string& server, const std::string& job, int watchers, int channels);
  ~WatchCrowd();  // ends what is still open
  WatchCrowd(const WatchCrowd&) = delete;
  WatchCrowd& operator=(const WatchCrowd&) = delete;

  // How many have not seen the event of that number.
  [[nodiscard]] int behind(int64_t sequence) const;
  bool all_have(int64_t sequence, int64_t limit_ms = 60'000) const;
  // Every watch has ended as that of an ended job does.
  bool all_ended(int64_t limit_ms = 60'000) const;
  // How often any of them had to come back.
  [[nodiscard]] int64_t returns() const { return returns_; }
  // Events that were left out or came twice, and ends that no watch may have: the first few.
  [[nodiscard]] std::vector<std::string> wrong() const;

 private:
  class Watch;
  void fault(const std::string& text);
  void bring_back(const std::stop_token& stop);

  const base::SystemClock clock_{};
  std::atomic<bool> leaving_ = false;
  std::atomic<int64_t> returns_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> faults_;  // guarded by mutex_
  std::vector<std::unique_ptr<v1::FineTuningService::Stub>> stubs_;
  std::vector<std::unique_ptr<Watch>> watches_;
  std::jthread returner_;
};

}  // namespace dex::support
