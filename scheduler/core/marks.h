#pragma once

#include "dex/v1/finetuning.pb.h"
#include "scheduler/core/fields.h"
#include "scheduler/core/presets.h"

namespace dex::core {

// Says of every value that nobody asked for whose it is (method.md §1, §5): PRESET becomes
// "PRESET (paper)", "PRESET (brief)" or "PRESET (ours)", and DEFAULT likewise, as the presets have
// the value. AUTO, what follows from method, data or model, is ours and stays, but for the few
// numbers of the baselines that are the brief's: "AUTO (brief)".
void mark_sources(const dex::v1::FineTuningJobSpec& spec, SizeClass size, Sources& sources);

}  // namespace dex::core
