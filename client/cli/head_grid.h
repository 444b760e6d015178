#pragma once

#include <string>
#include <vector>

#include "dex/v1/events.pb.h"

namespace dex::cli {

// A head selection for a terminal: for each score a grid, layers down and query heads across, from
// "·" (lowest of all heads) to "█" (highest); a chosen head stands in brackets, so no colour is
// needed. Without a score (criterion ALL or EXPLICIT) one grid shows the choice alone.
std::string head_grid_text(const v1::HeadSelectionComplete& selection);

// One such grid of scores alone: a list of heads a layer; "?" where a score is not defined.
std::string score_grid_text(const std::string& title,
                            const std::vector<std::vector<double>>& scores);

}  // namespace dex::cli
