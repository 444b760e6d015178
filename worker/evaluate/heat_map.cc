#include "worker/evaluate/heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace dex::evaluate {
namespace {

constexpr std::array<std::string_view, 5> kShades = {" ", "░", "▒", "▓", "█"};
constexpr size_t kBar = 4;          // shades of a cell
constexpr size_t kCell = kBar + 5;  // and " 100 "

std::string padded(const std::string& text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

std::string cell(double share) {
  const auto shade = static_cast<size_t>(std::min(4.0, std::floor(share * 5)));
  std::string out;
  for (size_t i = 0; i < kBar; ++i) out += kShades[shade];
  return out + padded(std::to_string(std::lround(share * 100)), 4) + ' ';
}

void remember(std::vector<std::string>& seen, const std::string& value) {
  if (std::ranges::find(seen, value) == seen.end()) seen.push_back(value);
}

std::string needles_of(const ResultRow& row) {
  const std::string* needles = find(row.dims, "needles");
  return needles == nullptr ? "" : *needles;
}

}  // namespace

std::vector<std::string> heat_maps_of(std::span<const ResultRow> rows, const std::string& metric,
                                      const std::string& subject) {
  std::vector<std::string> needles, maps;
  for (const ResultRow& row : rows) remember(needles, needles_of(row));
  for (const std::string& each : needles) {
    std::string map = heat_map(rows, metric, subject, each);
    if (!map.empty()) maps.push_back(std::move(map));
  }
  return maps;
}

std::string heat_map(std::span<const ResultRow> rows, const std::string& metric,
                     const std::string& subject, const std::string& needles) {
  std::vector<std::string> lengths, depths;  // as the rows have them: ascending
  std::map<std::pair<std::string, std::string>, double> shares;
  for (const ResultRow& row : rows) {
    const std::string* length = find(row.dims, "length");
    const std::string* depth = find(row.dims, "depth");
    if (row.metric != metric || row.subject != subject || length == nullptr || depth == nullptr ||
        needles_of(row) != needles)
      continue;
    remember(lengths, *length);
    remember(depths, *depth);
    shares[{*length, *depth}] = row.value;
  }
  if (shares.empty()) return {};
  const std::string title =
      metric + ", " + subject + (needles.empty() ? "" : ", needles " + needles);
  const size_t left = std::max<size_t>(title.size(), 11) + 2;
  std::string out = title + std::string(left - title.size(), ' ');
  for (const std::string& length : lengths) out += padded(length, kCell - 1) + ' ';
  out += '\n';
  for (const std::string& depth : depths) {
    const std::string name = "depth" + padded(depth, 4) + " %";
    out += name + std::string(left - name.size(), ' ');
    for (const std::string& length : lengths) {
      const auto share = shares.find({length, depth});
      out += share == shares.end() ? std::string(kCell, ' ') : cell(share->second);
    }
    out += '\n';
  }
  return out;
}

}  // namespace dex::evaluate
