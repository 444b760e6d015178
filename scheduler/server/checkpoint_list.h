#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "dex/v1/events.pb.h"
#include "dex/v1/finetuning.pb.h"
#include "services/base/status.h"

namespace dex::server {

// The checkpoints of a job as its events tell them: one a step, the last that was written there,
// with the figures of the update before it and of the evaluation at it, and by layer those of the
// last evaluation up to it. Pure; not thread-safe.
class CheckpointList {
 public:
  explicit CheckpointList(std::string job) : job_(std::move(job)) {}

  // Events in their order; those of other types pass by.
  void add(const v1::FineTuningEvent& event);

  // The `count` written last, newest first, of those before the one whose id is `after` (empty:
  // all). INVALID_CURSOR when there is no such one.
  [[nodiscard]] base::Result<v1::ListFineTuningCheckpointsResponse> page(const std::string& after,
                                                                         int count) const;

 private:
  struct Saved {
    v1::Checkpoint checkpoint;
    int64_t sequence = 0;
  };
  struct Evaluated {
    double loss = 0, accuracy = 0;
  };
  // What updates and evaluations have said up to the checkpoint's step.
  void add_figures(v1::Checkpoint& checkpoint) const;

  const std::string job_;
  std::map<uint32_t, Saved> saved_;  // by step
  std::map<uint32_t, double> train_loss_, lambda_mean_;
  std::map<uint32_t, v1::Metrics> by_layer_;  // points that have λ and branch sizes by layer
  std::map<uint32_t, Evaluated> evaluated_;
  std::optional<uint32_t> best_;  // step of the last that was the best when it was written
};

}  // namespace dex::server
