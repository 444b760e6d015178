#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "worker/agent/attempt.h"

namespace dex::agent {

// The attempts whose lease this worker renews: from the claim until Finish is answered.
// Thread-safe.
class AttemptList {
 public:
  void add(std::shared_ptr<Attempt> attempt) {
    const std::lock_guard lock(mutex_);
    attempts_.push_back(std::move(attempt));
  }
  void remove(const std::shared_ptr<Attempt>& attempt) {
    const std::lock_guard lock(mutex_);
    std::erase(attempts_, attempt);
  }
  [[nodiscard]] std::vector<std::shared_ptr<Attempt>> all() const {
    const std::lock_guard lock(mutex_);
    return attempts_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Attempt>> attempts_;
};

}  // namespace dex::agent
