#pragma once

#include <string>

#include "dex/v1/finetuning.pb.h"
#include "services/base/status.h"

namespace dex::cli {

// --promote-if TASK.METRIC<=NUMBER (or >=) as a gate whose other fields are open, so that the
// server's defaults hold: "held_out.loss<=0" is passed by a job whose held-out loss is surely no
// higher than its base's. INVALID_FIELD says what is wrong; which tasks and metrics there are is
// the server's to say.
base::Result<v1::Gate> parse_gate(const std::string& text);

}  // namespace dex::cli
