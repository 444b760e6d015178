#include "worker/train/speed.h"

namespace dex::train {

void Speed::update(double seconds, int64_t tokens) {
  recent_.push_back({seconds, tokens});
  if (recent_.size() > kWindow) recent_.pop_front();
  total_seconds_ += seconds;
  total_tokens_ += tokens;
}

void Speed::pause(double seconds) {
  pause_seconds_ += seconds;
  ++pauses_;
}

double Speed::tokens_per_second() const {
  double seconds = 0;
  int64_t tokens = 0;
  for (const Update& update : recent_) {
    seconds += update.seconds;
    tokens += update.tokens;
  }
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

double Speed::seconds_left(int64_t updates, int64_t pauses) const {
  double seconds = 0;
  for (const Update& update : recent_) seconds += update.seconds;
  const double each = recent_.empty() ? 0 : seconds / static_cast<double>(recent_.size());
  const double pause = pauses_ == 0 ? 0 : pause_seconds_ / static_cast<double>(pauses_);
  return each * static_cast<double>(updates) + pause * static_cast<double>(pauses);
}

double Speed::overall_tokens_per_second() const {
  return total_seconds_ > 0 ? static_cast<double>(total_tokens_) / total_seconds_ : 0;
}

}  // namespace dex::train
