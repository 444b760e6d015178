#pragma once

#include <string>

#include "worker/train/selection.h"
#include "worker/train/spec.h"

namespace dex::train {

const char* name(evaluate::Criterion criterion);  // "THRESHOLD"

// HeadSelectionComplete (events.proto) as JSON; `step` 0: before training.
std::string selection_event(const JobSpec& spec, const Selection& selection, int64_t step);

// The report of method.md §4.9 as a JSON object: rule with its units and parameters, calibration
// (source, what was asked for and what was there, i_min, seed), scores a layer and head, chosen
// sets, share overall and a layer, and what chose each head (null: not chosen; "kept": by
// hysteresis alone). Warns of a threshold rule that chooses nothing or over 60 %, and of
// calibration rows that are few or short.
std::string selection_report(const JobSpec& spec, const Selection& selection, int64_t step);

// The last report of head_selection.json (an array of them) as an SVG document of its own
// (head_pictures.h); empty if the log has none.
std::string selection_picture(const std::string& log);

}  // namespace dex::train
