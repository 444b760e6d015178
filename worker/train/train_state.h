#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/train/early_stopping.h"
#include "worker/train/head_masks.h"
#include "worker/train/watchdog.h"

namespace dex::train {

// Everything of a job between two updates that is not a tensor: what state.json of a checkpoint
// holds (jobs.md §7). Data order, packing, λ and learning rate are functions of `step` and need
// nothing here.
struct TrainState {
  int64_t step = 0;            // updates done = position in the data plan
  int64_t trained_tokens = 0;  // tokens read by applied and skipped updates alike
  Watchdog::State watchdog;
  HeadMasks::Table masks;  // empty without a branch
  std::string selection;   // JSON: the selection report, and each re-selection

  // Held-out loss: of the base (step 0), the last one and the best one. With early stopping the
  // best evaluation is early's, else the one with the lowest loss, step 0 too; −1: none yet.
  int64_t last_evaluation = -1;
  std::optional<double> base_loss, valid_loss, best_loss;
  int64_t best_step = -1;
  double branch_ratio = 0;
  std::vector<double> valid_losses;  // of every evaluation
  std::vector<double> train_losses;  // mean training loss between evaluations

  EarlyStopping::State early;
  HeadMasks::Table best_masks;  // of early.best_step; empty while it has none, or without a branch

  // Running sums: since the last evaluation, and in the present pass over the data.
  double window_loss = 0, pass_loss = 0;
  int64_t window_updates = 0, pass_updates = 0, pass_tokens = 0;
  std::vector<double> recent_losses, recent_norms;  // of the last 50 updates, for advice
  std::vector<std::string> advised;                 // topics that were raised already
};

std::string to_json(const TrainState& state);
// Throws std::runtime_error naming the key that is missing or wrong.
TrainState state_from_json(const std::string& json);

}  // namespace dex::train
