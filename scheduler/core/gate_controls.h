#pragma once

#include <string>
#include <vector>

#include "dex/v1/finetuning.pb.h"

// The control of method.md §2.7: the same training without a branch. Pure.
namespace dex::core {

// What keeps a job of method kvo_only from being the control of `job` (both specs effective):
// whatever decides which rows come in which order and where the run may stop, and where W_K, W_V,
// W_O are trained beside a branch (KVO_DEX) also how they are moved. "seed is 7, and 12 there", one
// a field, in the order of api.md §3; empty: nothing. Rates of other methods differ by design and
// are not compared.
std::vector<std::string> control_differences(const dex::v1::FineTuningJobSpec& job,
                                             const dex::v1::FineTuningJobSpec& control);

}  // namespace dex::core
