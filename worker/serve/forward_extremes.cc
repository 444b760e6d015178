// The largest activations of a pass (activation_extremes.h), where somebody watches.
#include <algorithm>
#include <cmath>

#include "worker/serve/forward.h"

namespace dex::serve {

void Forward::watch(ActivationExtremes* extremes) {
  extremes_ = extremes;
  std::ranges::fill(largest_logits_, 0.0F);
}

void Forward::note_hidden() {
  if (extremes_ == nullptr) return;
  const auto count = static_cast<int64_t>(rows_.size()) * config_.hidden_size;
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(x_[i]));
  extremes_->hidden = std::max(extremes_->hidden, static_cast<double>(largest));
}

void Forward::note_run() {
  if (extremes_ == nullptr) return;
  const float largest = *std::ranges::max_element(largest_logits_);
  extremes_->attention_logit = std::max(extremes_->attention_logit, static_cast<double>(largest));
  extremes_->tokens += static_cast<int64_t>(rows_.size());
}

}  // namespace dex::serve
