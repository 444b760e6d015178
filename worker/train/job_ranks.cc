// A job of several ranks: where they meet, and what the others do while rank 0 runs the job.
#include "worker/train/job_run.h"

namespace dex::train::detail {

// Once spec and data are read: what is wrong with them each rank finds by itself, with its code.
void Job::join_ranks() {
  if (!spec_.ranks.several()) return;
  const int32_t micro_batches =
      (resolved_.batch_size + resolved_.micro_batch_size - 1) / resolved_.micro_batch_size;
  if (micro_batches < spec_.ranks.ranks) {
    warn("ranks_idle: an update has " + std::to_string(micro_batches) + " micro-batches for " +
         std::to_string(spec_.ranks.ranks) +
         " ranks, so some have nothing to do; a larger batch_size or a smaller micro_batch_size "
         "gives them a share");
  }
  group_ = join_process_group({spec_.ranks.rank, spec_.ranks.ranks, spec_.ranks.rendezvous});
}

RankPlan Job::rank_plan() const {
  return {resolved_.updates, resolved_.batch_size, resolved_.micro_batch_size,
          parameters_->values().numel()};
}

void Job::follow() {
  selection_.heads.resize(static_cast<size_t>(config_.layers));  // rank 0 chooses them
  place_ = MemoryPlace::kOptimizer;
  prepare_weights();
  lone_updater_ = std::make_unique<Updater>(
      *llama_, adaptation_, *parameters_, *optimizer_,
      Updater::Options{resolved_.micro_batch_size, spec_.hyperparameters.max_grad_norm, spec_.seed,
                       prefix_.get(), group_.get()});
  RankFollower({*group_, adaptation_, *parameters_, *optimizer_, *lone_updater_, *plan_,
                data_.train, rank_plan(), spec_.dex.first_layer})
      .run();
}

}  // namespace dex::train::detail
