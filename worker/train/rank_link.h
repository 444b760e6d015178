#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/model/adaptation.h"
#include "worker/train/adamw.h"
#include "worker/train/data_plan.h"
#include "worker/train/examples.h"
#include "worker/train/flat_parameters.h"
#include "worker/train/process_group.h"
#include "worker/train/updater.h"

namespace dex::train {

// What all ranks of a job must have found alike in spec and data.
struct RankPlan {
  int64_t updates = 0;  // N
  int32_t batch_size = 0, micro_batch_size = 0;
  int64_t values = 0;  // of the flat buffer
  bool operator==(const RankPlan&) const = default;
};

// Rank 0's side. It alone decides: the loop, evaluations, watchdog, heads and checkpoints are its
// own, and the others do what they are told with the same weights. So their state is rank 0's to
// the bit, whatever happened to it. One thread; everything given outlives it. Each call waits until
// the others take it up; throws Failure kRankLost as ProcessGroup does.
class RankLeader {
 public:
  RankLeader(ProcessGroup& group, const model::Adaptation& adaptation,
             const FlatParameters& parameters, const AdamW& optimizer, const RankPlan& plan);

  // Weights and optimizer, as they are here: at the start, and whenever they were replaced.
  void share_state();
  // Update `step` begins, with λ of that step and the masks as they are here.
  void begin(int64_t step);
  // What all ranks have the gradients of is applied; an update that is not followed by this is
  // skipped.
  void apply(double norm, const AdamW::Rates& rates);
  // The others end with success.
  void end();

  [[nodiscard]] ProcessGroup& group() const { return group_; }

 private:
  ProcessGroup& group_;
  const model::Adaptation& adaptation_;
  const FlatParameters& parameters_;
  const AdamW& optimizer_;
  RankPlan plan_;
};

// Every other rank's. One thread.
class RankFollower {
 public:
  struct Parts {  // all outlive this object
    ProcessGroup& group;
    model::Adaptation& adaptation;
    FlatParameters& parameters;
    AdamW& optimizer;
    Updater& updater;  // of the same group
    DataPlan& data;
    const std::vector<Example>& examples;
    RankPlan plan;
    int64_t first_layer = 0;  // below it masks are the base's
  };
  explicit RankFollower(const Parts& parts) : parts_(parts) {}

  // Until rank 0 ends the job. Throws Failure: kRankLost, or kRetryable where rank 0 has another
  // plan.
  void run();

 private:
  void take_state(const at::Tensor& message);
  void update(const at::Tensor& message);

  Parts parts_;
};

}  // namespace dex::train
