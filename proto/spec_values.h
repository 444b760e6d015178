#pragma once

#include <string>
#include <vector>

#include "dex/v1/finetuning.pb.h"

namespace dex::proto {

// One value of a spec that api.md §3 does not allow.
struct BadValue {
  std::string path;  // below the spec: "hyperparameters.n_epochs"
  std::string what;  // "must be between 1 and 100, got 101"
  // A value of the field's kind, beyond its limits. False: no value at all (NaN, a number that the
  // enum does not have, FORM_UNSPECIFIED).
  bool out_of_range = false;
};

// Everything that is wrong with the values of `spec` each by itself, whatever the others are; unset
// ones are right. Scheduler and trainer both ask this function and nothing else for limits, so what
// one takes the other takes. Pure.
std::vector<BadValue> bad_values(const dex::v1::FineTuningJobSpec& spec);

// Choices of a resolved spec that contradict each other whatever the model, asked by both likewise:
// train FULL_DEX publishes a folded checkpoint, so its branch must fold (method.md §3.5, §3.6);
// a first_layer with a method that trains what lies below every layer, or with heads below it;
// group_weights without group_by;
// gates on figures that are not there (gates.h).
std::vector<BadValue> conflicts(const dex::v1::FineTuningJobSpec& spec);

// Whether the number at `path` has limits. For a test: a new number of the contract must get some.
bool has_limits(const std::string& path);

}  // namespace dex::proto
