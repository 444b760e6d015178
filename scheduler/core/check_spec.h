#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dex/v1/finetuning.pb.h"
#include "dex/v1/models.pb.h"
#include "scheduler/core/fields.h"
#include "services/base/status.h"

namespace dex::core {

// One thing that is wrong with a spec. `reason` as in api.md §1, `field` a path below the spec.
struct Problem {
  std::string reason;
  std::string field;
  std::string description;
};

// All problems as one INVALID_ARGUMENT: the first one's reason, every one as a field violation. OK
// when there is none.
base::Status to_status(const std::vector<Problem>& problems);

// What can be said of the user's own values before a preset is applied: limits, NaN, unknown enum
// numbers, forms of names.
std::vector<Problem> check_values(const dex::v1::FineTuningJobSpec& spec);

// Removes the preset's values that have no effect under the final choice (a COSINE start under
// PAPER_EQ4, say) and blocks that are empty then, and reports values that the user has set
// (UNUSED_FIELD).
std::vector<Problem> drop_unused(dex::v1::FineTuningJobSpec& spec, Sources& sources);

// What needs the whole resolved spec and the model: computed values, limits of the model, head
// lists, dead points (method.md §2.5, §3.6). `updates` is N where max_steps gives it; without it
// the trainer judges what depends on it, by the true number.
std::vector<Problem> check_resolved(const dex::v1::FineTuningJobSpec& spec,
                                    const dex::v1::Model& model, std::optional<int64_t> updates);

}  // namespace dex::core
