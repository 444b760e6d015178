#include "worker/evaluate/report_text.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "services/text/utf8.h"

namespace dex::evaluate {
namespace {

using nlohmann::ordered_json;

std::string digits(double value) {
  std::array<char, 40> out{};
  std::snprintf(out.data(), out.size(), "%.4f", value);
  return out.data();
}

std::string between(const std::optional<Interval>& interval) {
  return interval ? digits(interval->low) + " – " + digits(interval->high) : "–";
}

std::string shown(const Dims& dims) {
  std::string out;
  for (const auto& [key, value] : dims) out += (out.empty() ? "" : " ") + key + "=" + value;
  return out;
}

ordered_json json_of(const Dims& dims) {
  ordered_json out = ordered_json::object();
  for (const auto& [key, value] : dims) out[key] = value;
  return out;
}

ordered_json json_of(const std::optional<Interval>& interval, double Interval::*end) {
  return interval ? ordered_json((*interval).*end) : ordered_json(nullptr);
}

ordered_json json_of(const ResultRow& row) {
  ordered_json out = {{"task", row.task},
                      {"subject", row.subject},
                      {"metric", row.metric},
                      {"dims", json_of(row.dims)},
                      {"value", row.value},
                      {"low", json_of(row.interval, &Interval::low)},
                      {"high", json_of(row.interval, &Interval::high)},
                      {"confidence", row.confidence},
                      {"interval", name(row.kind)},
                      {"n", row.n}};
  if (row.comparison) {
    out["delta"] = row.comparison->delta;
    out["delta_low"] = json_of(row.comparison->interval, &Interval::low);
    out["delta_high"] = json_of(row.comparison->interval, &Interval::high);
    out["verdict"] = name(row.comparison->verdict);
  }
  return out;
}

using Line = std::vector<std::string>;

Line line_of(const ResultRow& row) {
  Line out = {row.metric,
              shown(row.dims),
              row.subject,
              digits(row.value),
              between(row.interval),
              name(row.kind),
              std::to_string(row.n),
              "",
              "",
              ""};
  if (row.comparison) {
    out[7] = digits(row.comparison->delta);
    out[8] = between(row.comparison->interval);
    out[9] = name(row.comparison->verdict);
  }
  return out;
}

// The header, then a line a row. A column that only its header fills is left out: no dims, or no
// second subject.
std::vector<Line> lines_of(std::span<const ResultRow> rows) {
  std::array<char, 16> share{};
  std::snprintf(share.data(), share.size(), "%g %%", rows[0].confidence * 100);
  const std::string between_header = std::string(share.data()) + " interval";
  std::vector<Line> lines = {{"metric", "where", "subject", "value", between_header, "by", "n",
                              "delta", between_header, "verdict"}};
  for (const ResultRow& row : rows) lines.push_back(line_of(row));
  for (size_t c = lines[0].size(); c-- > 0;) {
    const bool used = std::any_of(lines.begin() + 1, lines.end(),
                                  [&](const Line& line) { return !line[c].empty(); });
    if (used) continue;
    for (Line& line : lines) line.erase(line.begin() + static_cast<std::ptrdiff_t>(c));
  }
  return lines;
}

// A cell of a Markdown table: names in files may hold what ends one.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return out;
}

}  // namespace

std::string rows_as_table(std::span<const ResultRow> rows) {
  if (rows.empty()) return {};
  const std::vector<Line> lines = lines_of(rows);
  std::vector<size_t> widths(lines[0].size(), 0);
  for (const Line& line : lines) {
    for (size_t c = 0; c < line.size(); ++c)
      widths[c] = std::max(widths[c], text::count_characters(line[c]));
  }
  std::string out;
  for (const Line& line : lines) {
    std::string text;
    for (size_t c = 0; c < line.size(); ++c)
      text += line[c] + std::string(widths[c] - text::count_characters(line[c]) + 2, ' ');
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  return out;
}

std::string rows_as_markdown(std::span<const ResultRow> rows) {
  if (rows.empty()) return {};
  const std::vector<Line> lines = lines_of(rows);
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    out += "|";
    for (const std::string& text : lines[i]) out += " " + cell(text) + " |";
    out += "\n";
    if (i > 0) continue;
    out += "|";
    for (size_t c = 0; c < lines[0].size(); ++c) out += " --- |";
    out += "\n";
  }
  return out;
}

std::string evaluation_as_json(const std::string& task, const Evaluation& evaluation,
                               uint64_t seed) {
  ordered_json rows = ordered_json::array();
  for (const ResultRow& row : evaluation.rows) rows.push_back(json_of(row));
  const ordered_json out = {{"task", task},
                            {"complete", evaluation.complete},
                            {"seed", seed},
                            {"rows", rows},
                            {"notes", evaluation.notes}};
  return out.dump(1) + "\n";
}

std::string sample_as_json(const Sample& sample) {
  ordered_json out = {{"task", sample.task}, {"subject", sample.subject}, {"item", sample.item}};
  if (sample.line > 0) out["line"] = sample.line;
  if (!sample.dims.empty()) out["dims"] = json_of(sample.dims);
  if (!sample.prompt.empty()) out["prompt"] = sample.prompt;
  if (!sample.expected.empty()) out["expected"] = sample.expected;
  out["output"] = sample.output;
  out["score"] = sample.score;
  if (sample.baseline_score) out["baseline_score"] = *sample.baseline_score;
  if (!sample.logprobs.empty()) out["logprobs"] = sample.logprobs;
  for (const auto& [part, share] : sample.attention) out["attention"][part] = share;
  // A greedy answer may end inside a character.
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = text.size() - most / 4;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return text.substr(0, text::utf8_prefix(text, most / 4 * 3)) + " … " + text.substr(end);
}

}  // namespace dex::evaluate
