#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace dex::train {

// Speed of training and time left, from the last updates; evaluations and checkpoints are measured
// apart, so they spoil neither. Times are passed in. Not thread-safe.
class Speed {
 public:
  void update(double seconds, int64_t tokens);  // one optimizer update
  void pause(double seconds);                   // one evaluation or checkpoint

  double tokens_per_second() const;  // over the last kWindow updates, 0 before the first
  double seconds_left(int64_t updates, int64_t pauses) const;
  double overall_tokens_per_second() const;  // over all updates

 private:
  static constexpr size_t kWindow = 20;
  struct Update {
    double seconds;
    int64_t tokens;
  };
  std::deque<Update> recent_;
  double total_seconds_ = 0, pause_seconds_ = 0;
  int64_t total_tokens_ = 0, pauses_ = 0;
};

}  // namespace dex::train
