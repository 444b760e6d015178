#include "worker/evaluate/head_pictures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>

namespace dex::evaluate {
namespace {

// Lengths in SVG units, which a browser shows as pixels.
constexpr int kCell = 16, kGap = 2, kLeft = 44, kTop = 80, kPanelGap = 40, kLabel = 20;
constexpr int kBins = 20, kBarWidth = 12, kBarsHeight = 90;

// Only classes: the two colour schemes differ in nothing else.
constexpr const char* kStyle =
    "<style>.dex-heads{--ink:#1c2430;--soft:#5a6675;--paper:#ffffff;--score:#1f5fa8;--ring:#b3261e}"
    "@media (prefers-color-scheme:dark){.dex-heads{--ink:#e8ebf0;--soft:#a4afbd;--paper:#14181e;"
    "--score:#7db4f0;--ring:#ffb4a9}}"
    ".dex-heads text{fill:var(--ink);font:12px system-ui,sans-serif}"
    ".dex-heads .soft{fill:var(--soft)}.dex-heads .paper{fill:var(--paper)}"
    ".dex-heads .cell{fill:var(--score);stroke:var(--soft);stroke-width:.5}"
    ".dex-heads .ring{fill:none;stroke:var(--ring);stroke-width:2}"
    ".dex-heads .rest{fill:var(--score);fill-opacity:.45}"
    ".dex-heads .hatch{stroke:var(--ring);stroke-width:2}"
    ".dex-heads .chosen{fill:url(#dex-hatch);stroke:var(--ring)}</style>"
    "<defs><pattern id=\"dex-hatch\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><line class=\"hatch\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"4\"/>"
    "</pattern></defs>";

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string text_at(int x, int y, const std::string& text, const char* more = "") {
  return "<text x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\"" + more + ">" +
         escaped(text) + "</text>";
}

std::string box(const char* name, int x, int y, int width, int height,
                const std::string& more = "") {
  return std::string("<rect class=\"") + name + "\" x=\"" + std::to_string(x) + "\" y=\"" +
         std::to_string(y) + "\" width=\"" + std::to_string(width) + "\" height=\"" +
         std::to_string(height) + "\"" + more;
}

bool contains(const std::vector<int32_t>& heads, int32_t head) {
  return std::find(heads.begin(), heads.end(), head) != heads.end();
}

// Those that are defined.
std::vector<double> flattened(const HeadTable& table) {
  std::vector<double> out;
  for (const auto& layer : table) {
    std::ranges::copy_if(layer, std::back_inserter(out),
                         [](double value) { return std::isfinite(value); });
  }
  return out;
}

class Picture {
 public:
  Picture(const std::vector<PicturedScore>& scores, const HeadSets& selected, int32_t heads)
      : scores_(scores), selected_(selected), heads_(heads) {}

  [[nodiscard]] int width() const {
    const int panels = std::max<int>(1, static_cast<int>(scores_.size()));
    return panels * panel_width() + (panels - 1) * kPanelGap + 2 * kGap;
  }
  [[nodiscard]] int height() const {
    return grid_bottom() + (scores_.empty() ? kLabel : kBarsHeight + 4 * kLabel);
  }

  [[nodiscard]] std::string panels() const {
    if (scores_.empty()) return grid(0, nullptr);
    std::string out;
    for (size_t i = 0; i < scores_.size(); ++i) {
      const int x = static_cast<int>(i) * (panel_width() + kPanelGap);
      out += grid(x, &scores_[i]) + bars(x, scores_[i]);
    }
    return out;
  }

 private:
  [[nodiscard]] int panel_width() const {
    return kLeft + std::max(heads_ * kCell, kBins * kBarWidth) + 2 * kGap;
  }
  [[nodiscard]] int grid_bottom() const {
    return kTop + static_cast<int>(selected_.size()) * kCell;
  }
  static std::string headline(const PicturedScore& score) {
    return score.name + (score.unit.empty() ? "" : " (" + score.unit + ")");
  }

  [[nodiscard]] std::string grid(int x, const PicturedScore* score) const {
    std::string out = text_at(x + kLeft, kTop - 22, score ? headline(*score) : "Chosen heads");
    for (int32_t h = 0; h < heads_; h += 4)
      out += text_at(x + kLeft + h * kCell + 2, kTop - 6, std::to_string(h), " class=\"soft\"");
    const std::vector<double> all =
        score != nullptr ? flattened(score->scores) : std::vector<double>();
    const double low = all.empty() ? 0 : *std::min_element(all.begin(), all.end());
    const double high = all.empty() ? 0 : *std::max_element(all.begin(), all.end());
    for (size_t l = 0; l < selected_.size(); ++l) {
      const int y = kTop + static_cast<int>(l) * kCell;
      out +=
          text_at(x + kLeft - 6, y + 12, std::to_string(l), " class=\"soft\" text-anchor=\"end\"");
      for (int32_t h = 0; h < heads_; ++h)
        out += cell(x + kLeft + h * kCell, y, l, h, score, low, high);
    }
    return out;
  }

  [[nodiscard]] std::string cell(int x, int y, size_t layer, int32_t head,
                                 const PicturedScore* score, double low, double high) const {
    const bool chosen = contains(selected_[layer], head);
    std::string what = "layer " + std::to_string(layer) + ", head " + std::to_string(head);
    double shade = 0.08;
    if (score != nullptr) {
      const double value = score->scores[layer][static_cast<size_t>(head)];
      const bool defined = std::isfinite(value);
      what += defined ? ": " + number(value) + (score->unit.empty() ? "" : " " + score->unit)
                      : ": not defined";
      // Never quite empty: a cell is to be seen on either background.
      if (defined && high > low) shade += 0.92 * (value - low) / (high - low);
    }
    const int size = kCell - kGap;
    std::string out =
        box("cell", x, y, size, size, " fill-opacity=\"" + number(shade) + "\"><title>") +
        escaped(what + (chosen ? ", chosen" : "")) + "</title></rect>";
    if (chosen) out += box("ring", x + 1, y + 1, size - 2, size - 2, "/>");
    return out;
  }

  // All heads below, the chosen ones of them in front.
  [[nodiscard]] std::string bars(int x, const PicturedScore& score) const {
    const Histogram all = histogram(flattened(score.scores), kBins);
    const int64_t most =
        std::max<int64_t>(1, *std::max_element(all.counts.begin(), all.counts.end()));
    std::vector<int64_t> chosen(all.counts.size(), 0);
    for (size_t l = 0; l < selected_.size(); ++l) {
      for (const int32_t h : selected_[l]) {
        const double value = score.scores[l][static_cast<size_t>(h)];
        if (std::isfinite(value)) ++chosen[bin_of(all, value)];
      }
    }
    const int bottom = grid_bottom() + 2 * kLabel + kBarsHeight;
    const auto bar = [&](const char* name, size_t bin, int64_t count) {
      const int size = static_cast<int>(
          std::lround(static_cast<double>(kBarsHeight * count) / static_cast<double>(most)));
      return box(name, x + kLeft + static_cast<int>(bin) * kBarWidth, bottom - size, kBarWidth - 1,
                 size, "/>");
    };
    std::string out = text_at(x + kLeft, grid_bottom() + kLabel, "Heads by " + score.name);
    for (size_t bin = 0; bin < all.counts.size(); ++bin) {
      if (all.counts[bin] > 0) out += bar("rest", bin, all.counts[bin]);
      if (chosen[bin] > 0) out += bar("chosen", bin, chosen[bin]);
    }
    out += text_at(x + kLeft - 6, bottom - kBarsHeight + 10, std::to_string(most),
                   " class=\"soft\" text-anchor=\"end\"");
    out += text_at(x + kLeft, bottom + 16, number(all.low), " class=\"soft\"");
    out += text_at(x + kLeft + kBins * kBarWidth, bottom + 16, number(all.high),
                   " class=\"soft\" text-anchor=\"end\"");
    return out;
  }

  const std::vector<PicturedScore>& scores_;
  const HeadSets& selected_;
  int32_t heads_;
};

// How many of how many, in a sentence.
std::string choice(const HeadSets& selected, int32_t heads) {
  size_t chosen = 0;
  for (const auto& set : selected) chosen += set.size();
  return std::to_string(chosen) + " of " +
         std::to_string(selected.size() * static_cast<size_t>(heads)) + " heads are chosen, in " +
         std::to_string(selected.size()) + " layers of " + std::to_string(heads) + ".";
}

// The picture in sentences, for who cannot see it.
std::string summary(const std::string& first, const std::vector<PicturedScore>& scores) {
  std::string out = first;
  for (const PicturedScore& score : scores) {
    const std::vector<double> all = flattened(score.scores);
    if (all.empty()) continue;
    out += " " + score.name + " goes from " + number(*std::min_element(all.begin(), all.end())) +
           " to " + number(*std::max_element(all.begin(), all.end())) +
           (score.unit.empty() ? "" : " " + score.unit) + ".";
  }
  return out;
}

}  // namespace

Histogram histogram(const std::vector<double>& values, int32_t bins) {
  if (values.empty()) return {0, 0, std::vector<int64_t>(1, 0)};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  Histogram out{*low, *high, std::vector<int64_t>(*high > *low ? static_cast<size_t>(bins) : 1, 0)};
  for (const double value : values) ++out.counts[bin_of(out, value)];
  return out;
}

size_t bin_of(const Histogram& bars, double value) {
  const double share = bars.high > bars.low ? (value - bars.low) / (bars.high - bars.low) : 0;
  const auto bin = static_cast<size_t>(share * static_cast<double>(bars.counts.size()));
  return std::min(bin, bars.counts.size() - 1);  // the largest value closes the last range
}

namespace {

// `about`: what the picture shows beside the scores, in a sentence; `mark`: what its marks mean.
std::string svg(const std::string& title, const std::string& about, const char* mark,
                const std::vector<PicturedScore>& scores, const HeadSets& selected, int32_t heads) {
  const Picture picture(scores, selected, heads);
  const std::string size = std::to_string(picture.width()) + " " + std::to_string(picture.height());
  std::string out =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"dex-heads\" role=\"img\" "
      "aria-labelledby=\"dex-heads-title dex-heads-text\" viewBox=\"0 0 " +
      size + "\" width=\"" + std::to_string(picture.width()) + "\" height=\"" +
      std::to_string(picture.height()) + "\"><title id=\"dex-heads-title\">" + escaped(title) +
      "</title><desc id=\"dex-heads-text\">" + summary(about, scores) + "</desc>";
  out += kStyle;
  out += box("paper", 0, 0, picture.width(), picture.height(), "/>");
  out += text_at(kLeft, 18, title) + text_at(kLeft, 36, mark, " class=\"soft\"");
  out += picture.panels();
  return out + "</svg>\n";
}

}  // namespace

std::string head_selection_svg(const std::string& title, const std::vector<PicturedScore>& scores,
                               const HeadSets& selected, int32_t heads) {
  return svg(title, choice(selected, heads), "ringed: chosen", scores, selected, heads);
}

std::string head_scores_svg(const std::string& title, const std::vector<PicturedScore>& scores) {
  const HeadTable& first = scores.front().scores;
  const auto heads = static_cast<int32_t>(first.empty() ? 0 : first[0].size());
  const std::string about =
      std::to_string(first.size()) + " layers of " + std::to_string(heads) + " heads.";
  return svg(title, about, "darker: higher", scores, HeadSets(first.size()), heads);
}

}  // namespace dex::evaluate
