#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/model/config.h"
#include "worker/train/spec.h"

// Not a copy of the presets' values: the scheduler's own resolution, its bytes read by the
// trainer's own reader, as in a job. Kept apart from the tests because LibTorch and protobuf never
// meet in one file (performance.md §7).
namespace dex::train::testing {

std::vector<std::string> preset_names();

// The effective spec of `preset` for a base model like `model`: `updates` updates of 4 rows of up
// to 64 tokens, seed 3. Names and paths are those of `place`.
JobSpec resolved_preset(const std::string& preset, const model::Config& model, const JobSpec& place,
                        int64_t updates);

}  // namespace dex::train::testing
