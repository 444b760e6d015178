#pragma once

#include <string>
#include <vector>

#include "client/cli/command.h"
#include "dex/v1/finetuning.pb.h"
#include "services/base/status.h"

namespace dex::cli {

// `dexctl jobs heads`: the heads that a job adapts, or those that one would (PreviewHeadSelection).
void add_heads(CLI::App& jobs, Action& action);

// The flags of a preview, as typed.
struct PreviewFlags {
  std::string model, file, preset, criterion, seed;
  std::string out;  // folder of report and picture, also of a job's; empty: none is written
  std::vector<std::string> texts;
  std::vector<std::string> sets;  // path=value below head_selection: calibration.n_sequences=4
};
// Errors name the flag and what would be right.
base::Result<v1::PreviewHeadSelectionRequest> make_preview(const PreviewFlags& flags);

// What a report says beside the scores, each line where there is something to say: what chose the
// heads and their share by layer, what was measured, how stable the choice is, each re-selection by
// its changes, and the warnings.
std::string selection_text(const v1::HeadSelectionReport& report);

// The grids of head_grid.h, then selection_text.
std::string preview_text(const v1::HeadSelectionReport& report);

}  // namespace dex::cli
