#pragma once

#include <string>
#include <vector>

#include "dex/v1/models.pb.h"

namespace dex::core {

struct Resolved;

// Upper estimate of the branch's share of O at the end of the run, r_reach of method.md §2.2.
double branch_reach(const Resolved& resolved, const dex::v1::Model& model);

// Warnings that need no training: `lr_small_batch`, `branch_out_of_reach` (method.md §5),
// `model_artifact`. One sentence each, the topic first.
std::vector<std::string> advice_at_creation(const Resolved& resolved, const dex::v1::Model& model);

}  // namespace dex::core
