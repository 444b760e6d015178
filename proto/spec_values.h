#pragma once

#include <span>
#include <string>
#include <string_view>
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

// What the number at `path` may be.
struct Limits {
  std::string_view path;
  double low = 0, high = 0;
  bool above_low = false;  // low itself is out
};
// Null: it has none. A new number of the contract must get some, which a test sees to.
const Limits* limits_of(std::string_view path);
std::span<const Limits> all_limits();  // in the order of api.md §3

}  // namespace dex::proto
