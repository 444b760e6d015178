#include "client/cli/head_grid.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <set>

namespace dex::cli {
namespace {

using Layer = v1::HeadSelectionComplete::Layer;
using Scores = google::protobuf::RepeatedField<float>;
using ScoreOf = std::function<const Scores&(const Layer&)>;

constexpr std::array<const char*, 5> kShades = {"·", "░", "▒", "▓", "█"};

std::string formatted(const char* pattern, double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

std::string padded(int value, size_t width) {
  std::string text = std::to_string(value);
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

// Heads a layer: as many as have a score, or up to the last chosen one where none was measured.
int head_count(const v1::HeadSelectionComplete& selection) {
  int count = 0;
  for (const Layer& layer : selection.layers()) {
    count = std::max({count, layer.entropy_size(), layer.importance_size()});
    for (const uint32_t head : layer.selected())
      count = std::max(count, static_cast<int>(head) + 1);
  }
  return count;
}

std::string grid(const v1::HeadSelectionComplete& selection, const std::string& title,
                 const ScoreOf& score_of) {
  float low = std::numeric_limits<float>::infinity(), high = -low;
  for (const Layer& layer : selection.layers()) {
    if (!score_of) break;
    for (const float score : score_of(layer)) {
      if (!std::isfinite(score)) continue;
      low = std::min(low, score);
      high = std::max(high, score);
    }
  }
  std::string out = title;
  if (score_of) {
    out += ": " + formatted("%.4g", low) + " " + kShades.front() + " to " + kShades.back() + " " +
           formatted("%.4g", high);
  }
  const int heads = head_count(selection);
  out += "\nlayer";
  for (int h = 0; h < heads; ++h) out += padded(h, 3);
  out += "\n";
  for (int l = 0; l < selection.layers_size(); ++l) {
    const Layer& layer = selection.layers(l);
    const std::set<uint32_t> chosen(layer.selected().begin(), layer.selected().end());
    out += padded(l, 5) + " ";
    for (int h = 0; h < heads; ++h) {
      const bool is_chosen = chosen.contains(static_cast<uint32_t>(h));
      std::string shade = " ";
      if (score_of && h < score_of(layer).size() && !std::isfinite(score_of(layer).Get(h))) {
        shade = "?";
      } else if (score_of && h < score_of(layer).size() && high > low) {
        const double share = (score_of(layer).Get(h) - low) / (high - low);
        shade = kShades[std::min<size_t>(static_cast<size_t>(share * kShades.size()),
                                         kShades.size() - 1)];
      } else if (is_chosen) {
        shade = "x";
      }
      out += is_chosen ? "[" + shade + "]" : " " + shade + " ";
    }
    out += "\n";
  }
  return out;
}

}  // namespace

std::string head_grid_text(const v1::HeadSelectionComplete& selection) {
  std::string out =
      selection.criterion() + " chose " + std::to_string(selection.selected_heads()) + " heads, " +
      formatted("%.3g", 100 * selection.selected_ratio()) + " % of all, before " +
      (selection.step() == 0 ? "training" : "step " + std::to_string(selection.step() + 1)) +
      "; chosen ones in brackets\n";
  if (selection.layers().empty()) return out;
  const bool entropy = selection.layers(0).entropy_size() > 0,
             importance = selection.layers(0).importance_size() > 0;
  if (entropy) {
    out += "\n" + grid(selection, "entropy",
                       [](const Layer& layer) -> const Scores& { return layer.entropy(); });
  }
  if (importance) {
    out += "\n" + grid(selection, "importance",
                       [](const Layer& layer) -> const Scores& { return layer.importance(); });
  }
  if (!entropy && !importance) out += "\n" + grid(selection, "chosen", {});
  return out;
}

std::string score_grid_text(const std::string& title,
                            const std::vector<std::vector<double>>& scores) {
  v1::HeadSelectionComplete shown;
  for (const auto& layer : scores) {
    auto& out = *shown.add_layers();
    for (const double score : layer) out.add_entropy(static_cast<float>(score));
  }
  return grid(shown, title, [](const Layer& layer) -> const Scores& { return layer.entropy(); });
}

}  // namespace dex::cli
