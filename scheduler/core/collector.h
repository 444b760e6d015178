#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proto/spec_values.h"
#include "scheduler/core/check_spec.h"

namespace dex::core {

// Private to this room: what check_spec.cc and check_dex.cc collect problems with. `path` is the
// field's name in the reply.
class Collector {
 public:
  void add(std::string reason, const std::string& path, std::string what) {
    problems.push_back({std::move(reason), path, std::move(what)});
  }
  // The values of `spec` each by itself (proto/spec_values.h).
  void add_bad_values(const dex::v1::FineTuningJobSpec& spec) {
    for (proto::BadValue& bad : proto::bad_values(spec))
      add(bad.out_of_range ? "VALUE_OUT_OF_RANGE" : "INVALID_FIELD", bad.path, std::move(bad.what));
  }
  // What of `spec` contradicts itself (proto/spec_values.h).
  void add_conflicts(const dex::v1::FineTuningJobSpec& spec) {
    for (proto::BadValue& bad : proto::conflicts(spec))
      add("CONFLICTING_FIELDS", bad.path, std::move(bad.what));
  }
  std::vector<Problem> problems;
};

}  // namespace dex::core
