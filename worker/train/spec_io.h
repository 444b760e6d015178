#pragma once

#include <string>

#include "worker/train/spec.h"

namespace dex::train {

// Reads TrainerStart (frames.proto) from protobuf JSON or from its wire form and checks every value
// by itself (limits of proto/spec_values.h, exclusive fields, paths that must be set). The spec is
// an effective one: a preset's name alone, without its values, is refused, since presets are
// resolved by the scheduler. Throws Failure invalid_hyperparameter that names field and value.
// `source` names the text in messages.
JobSpec parse_spec_json(const std::string& json, const std::string& source);
JobSpec parse_spec_bytes(const std::string& bytes);

}  // namespace dex::train
