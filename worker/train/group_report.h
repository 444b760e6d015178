#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/train/dataset.h"
#include "worker/train/group_sampling.h"
#include "worker/train/spec.h"

namespace dex::train {

// The groups that a job draws its rows by, or nothing where it reads them as they are: it draws by
// none, or all rows are of one group. Throws Failure invalid_hyperparameter for the weight of a
// group that no row of the training file is of.
std::optional<GroupSampling> group_sampling(const JobSpec& spec, const Dataset& data);

// What the user should know before it starts, each "code: detail": that there is nothing to draw
// by, weights of groups whose rows are all held out or left out, and groups so small that their
// share is the same few rows again and again.
std::vector<std::string> group_warnings(const JobSpec& spec, const Dataset& data,
                                        const std::optional<GroupSampling>& groups);

// TrainingStart.groups (events.proto) as JSON: those with the most tokens a pass, at most 64.
std::string groups_json(const GroupSampling& groups);
// For people: "rows drawn by tag: law 75 % of the tokens (3 times a pass), prose 25 % (0.3333 times
// a pass)"; the four largest.
std::string groups_text(GroupBy by, const GroupSampling& groups);

}  // namespace dex::train
