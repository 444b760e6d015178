#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/train/data_plan.h"
#include "worker/train/spec.h"

namespace dex::train {

// The numbers of a run after everything that was left open is chosen from data, model and machine
// (api.md §3).
struct Resolved {
  int32_t max_seq_length = 0, batch_size = 0, micro_batch_size = 0;
  int64_t passes = 0;
  int64_t updates = 0;       // N
  int64_t warmup = 0;        // W
  int64_t anneal_steps = 0;  // T, at most N
  int64_t evaluate_every = 0, checkpoint_every = 0;
  std::vector<std::string>
      warnings;  // "annealing_clamped: anneal_steps 3000 > 180 updates: using 180"
};

// The sequence length: what was asked for, checked against the model's context, else `usual`, the
// p99.5 of the rows' tokens, within [16, kAutoMaxTokens] and the context. Throws Failure naming
// max_seq_length and the limit.
int32_t sequence_length(const JobSpec& spec, int64_t usual, int64_t context);
inline constexpr int32_t kAutoMaxTokens = 1024;

// The numbers of a run that do not need the plan yet: passes, batch and micro-batch. `lengths` of
// the training examples, at most max_seq_length each; `trained_tokens` of one pass.
//   n_epochs: 3, above 2 M trained tokens 2, above 20 M 1
//   batch_size: the power of two ≤ 64 that gives about 200 updates
//   micro_batch_size: what gives about 512 tokens (performance.md §3), halved for each
//   out-of-memory retry
// `groups`: as a pass is drawn (DataPlan::Options).
Resolved resolve_batches(const JobSpec& spec, const std::vector<int32_t>& lengths,
                         int32_t max_seq_length, int64_t trained_tokens,
                         const std::optional<GroupSampling>& groups = std::nullopt);

// How many of the lowest layers hold nothing that the job trains or changes, whatever its update:
// below hyperparameters.first_layer, and with dex_only below the first layer that a list of heads
// names. By the spec alone, so that a resumed job finds the same number.
int64_t frozen_layers(const JobSpec& spec);

DataPlan::Options plan_options(const JobSpec& spec, const Resolved& resolved);

// Whether λ follows T: not one that is constant, learned alone, or of no branch.
bool anneals(const JobSpec& spec);

// T beside its share of N (method.md §12): "90 (T/N 0.5)".
std::string annealing_text(int64_t steps, int64_t updates);

// Fills in what depends on N: W, T = round half up(fraction·N) or the steps asked for, clamped to
// N; evaluation ten times a run, checkpoints with it.
void resolve_schedules(const JobSpec& spec, int64_t updates, Resolved& resolved);

}  // namespace dex::train
