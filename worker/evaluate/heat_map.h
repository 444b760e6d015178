#pragma once

#include <span>
#include <string>
#include <vector>

#include "worker/evaluate/result.h"

namespace dex::evaluate {

// The length × depth grid of one metric of one subject as text, a row a depth, a column a length,
// each cell a share in per cent with a shade (darker is higher):
//
//   accuracy, base      1024     2048
//   depth   0 %     ████  95 ▒▒▒▒  40
//
// `rows` of other metrics, subjects and groupings are passed over; empty when none is left. Rows
// with a dim `needles` only where it is `needles`, which the title then says.
std::string heat_map(std::span<const ResultRow> rows, const std::string& metric,
                     const std::string& subject, const std::string& needles = "");

// One grid, or one for each value of the dim `needles`, in the order of the rows.
std::vector<std::string> heat_maps_of(std::span<const ResultRow> rows, const std::string& metric,
                                      const std::string& subject);

}  // namespace dex::evaluate
