#pragma once

#include <array>
#include <string>

#include "worker/train/spec.h"

namespace dex::train::testing {

// The ways of training that no preset has: the baselines of method.md §7, and the paper's branch
// with another train.
inline constexpr std::array kOtherTrains{model::Train::kLora,    model::Train::kAdapter,
                                         model::Train::kFull,    model::Train::kLoraDex,
                                         model::Train::kFullDex, model::Train::kDiffAttention};

// With dropout, so that a test of resuming sees that it is a function of the update.
inline void choose(model::Train train, JobSpec& spec) {
  spec.dex.train = train;
  if (!model::parts_of(train).branch) spec.dex.form = model::Form::kNone;
  spec.dex.lora = {.r = 3, .alpha = 6, .dropout = 0.1};
  spec.dex.adapter = {.size = 6};
}

// A name that GoogleTest takes: "lora_dex".
inline std::string test_name(model::Train train) {
  std::string text(model::name(train));
  for (char& c : text) c = c == '+' ? '_' : c;
  return text;
}

}  // namespace dex::train::testing
