#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/evaluate/head_selection.h"

namespace dex::evaluate {

// A score of every head, as a picture names it.
struct PicturedScore {
  std::string name;         // "Entropy"
  std::string unit;         // "nats"; may be empty
  const HeadTable& scores;  // [L][H]; outlives the call
};

// A score that is not finite is not defined: its cell says so, and no bar counts it.
// One SVG document that stands alone (no script, font or other file): for each score a grid, layers
// down and heads across, darker = higher, and a histogram of all heads; chosen heads are ringed in
// the grid and hatched in the histogram, so that colour is never the only mark. Follows the
// reader's light or dark colour scheme. Each cell has its numbers as a title; `title` and a summary
// are there for screen readers. Without a score the grid shows the choice alone.
//   selected: a list of heads a layer, of `heads` heads
std::string head_selection_svg(const std::string& title, const std::vector<PicturedScore>& scores,
                               const HeadSets& selected, int32_t heads);

// The same of scores alone, where nothing is chosen. At least one score; all of the same heads.
std::string head_scores_svg(const std::string& title, const std::vector<PicturedScore>& scores);

// Values in `bins` equal ranges from the smallest to the largest; one range if all are equal.
struct Histogram {
  double low = 0, high = 0;
  std::vector<int64_t> counts;
};
Histogram histogram(const std::vector<double>& values, int32_t bins);
// The range that a value from low to high is in.
size_t bin_of(const Histogram& bars, double value);

}  // namespace dex::evaluate
