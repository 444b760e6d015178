#include "worker/train/resolve.h"

#include <algorithm>
#include <cmath>

#include "worker/train/failure.h"
#include "worker/train/number_text.h"

namespace dex::train {
namespace {

constexpr int64_t kTwoPassesAbove = 2'000'000, kOnePassAbove = 20'000'000;
constexpr int64_t kWantedUpdates = 200;
constexpr int32_t kMaxAutoBatch = 64;
constexpr int32_t kMicroBatchTokens = 512;
constexpr int64_t kEvaluationsARun = 10;

int64_t auto_passes(int64_t trained_tokens) {
  if (trained_tokens > kOnePassAbove) return 1;
  return trained_tokens > kTwoPassesAbove ? 2 : 3;
}

int32_t auto_batch(int64_t sequences) {
  int32_t batch = 1;
  while (batch < kMaxAutoBatch && sequences / (2 * batch) >= kWantedUpdates) batch *= 2;
  return batch;
}

}  // namespace

int32_t sequence_length(const JobSpec& spec, int64_t usual, int64_t context) {
  const auto& asked = spec.hyperparameters.max_seq_length;
  if (!asked) {
    const int64_t limit = std::min<int64_t>(context, kAutoMaxTokens);
    return static_cast<int32_t>(std::clamp(usual, std::min<int64_t>(16, limit), limit));
  }
  if (*asked > context) {
    throw bad_spec("hyperparameters.max_seq_length", std::to_string(*asked) +
                                                         " is longer than the model's context of " +
                                                         std::to_string(context) + " tokens");
  }
  return *asked;
}

Resolved resolve_batches(const JobSpec& spec, const std::vector<int32_t>& lengths,
                         int32_t max_seq_length, int64_t trained_tokens,
                         const std::optional<GroupSampling>& groups) {
  const Hyperparameters& asked = spec.hyperparameters;
  Resolved out;
  out.max_seq_length = max_seq_length;
  out.passes = asked.n_epochs.value_or(auto_passes(trained_tokens));
  if (asked.batch_size) {
    out.batch_size = *asked.batch_size;
  } else {
    PackingOptions packing{.max_tokens = max_seq_length, .packing = asked.packing};
    const auto drawn = examples_of_pass(groups, lengths.size(), 0);
    const auto packs =
        static_cast<int64_t>(pack_pass(lengths, drawn, packing, spec.seed, 0).size());
    out.batch_size = auto_batch(packs * out.passes);
  }
  out.micro_batch_size =
      asked.micro_batch_size.value_or(std::max(1, kMicroBatchTokens / max_seq_length));
  out.micro_batch_size = std::min(out.micro_batch_size, out.batch_size);
  for (int retry = 0; retry < spec.oom_retries; ++retry)
    out.micro_batch_size = std::max(1, out.micro_batch_size / 2);
  return out;
}

int64_t frozen_layers(const JobSpec& spec) {
  if (spec.dex.publishes_model()) return 0;
  const bool by_list = spec.dex.train == model::Train::kDexOnly &&
                       spec.heads.criterion == evaluate::Criterion::kExplicit &&
                       spec.dex.soft_floor == 0 && !spec.goes_on();
  if (!by_list) return spec.dex.first_layer;
  const auto& lists = spec.heads.heads;
  const auto found =
      std::find_if(lists.begin(), lists.end(), [](const auto& heads) { return !heads.empty(); });
  if (found == lists.end()) return spec.dex.first_layer;
  return std::max<int64_t>(spec.dex.first_layer, found - lists.begin());
}

DataPlan::Options plan_options(const JobSpec& spec, const Resolved& resolved) {
  DataPlan::Options options;
  options.packing.max_tokens = resolved.max_seq_length;
  options.packing.packing = spec.hyperparameters.packing;
  options.batch_size = resolved.batch_size;
  options.passes = resolved.passes;
  options.max_steps = spec.hyperparameters.max_steps;
  options.seed = spec.seed;
  return options;
}

bool anneals(const JobSpec& spec) {
  const auto schedule = spec.dex.lambda.schedule;
  return spec.dex.has_branch() &&
         (schedule == model::Schedule::kPaperEq4 || schedule == model::Schedule::kSeedCosine);
}

std::string annealing_text(int64_t steps, int64_t updates) {
  const double share =
      static_cast<double>(steps) / static_cast<double>(std::max<int64_t>(1, updates));
  return std::to_string(steps) + " (T/N " + number_text(share) + ")";
}

void resolve_schedules(const JobSpec& spec, int64_t updates, Resolved& resolved) {
  resolved.updates = updates;
  resolved.warmup = warmup_updates(spec.hyperparameters.warmup_ratio, updates);
  const double fraction = spec.anneal.fraction * static_cast<double>(updates);
  resolved.anneal_steps =
      spec.anneal.steps.value_or(static_cast<int64_t>(std::floor(fraction + 0.5)));
  if (resolved.anneal_steps > updates) {
    resolved.warnings.push_back(
        "annealing_clamped: anneal_steps " + std::to_string(resolved.anneal_steps) + " > " +
        std::to_string(updates) + " updates: using " + std::to_string(updates));
    resolved.anneal_steps = updates;
  }
  const int64_t tenth = (updates + kEvaluationsARun - 1) / kEvaluationsARun;
  // 0 means "unset" for both: an evaluation or checkpoint every 0 updates has no meaning.
  const auto or_default = [](std::optional<int64_t> asked, int64_t value) {
    return asked && *asked > 0 ? *asked : std::max<int64_t>(1, value);
  };
  resolved.evaluate_every = or_default(spec.evaluation.every_steps, tenth);
  resolved.checkpoint_every = or_default(spec.checkpoints.every_steps, resolved.evaluate_every);
}

}  // namespace dex::train
