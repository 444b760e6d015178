#include "worker/train/row_report.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "services/text/utf8.h"
#include "worker/train/examples.h"
#include "worker/train/number_text.h"

namespace dex::train {
namespace {

using nlohmann::json;

constexpr size_t kGroupsOfKind = 16, kKindOfText = 4, kRowNameBytes = 64, kRowsOfText = 3;

struct Sum {
  RowLoss loss;
  int64_t rows = 0, tokens = 0;
};

// JSON has no NaN and no infinity; protobuf's JSON takes the words.
json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::string row_name(const std::string& name) {
  return name.substr(0, text::utf8_prefix(name, kRowNameBytes));
}

// The smallest power of two, 16 or more, that is not below.
std::string length_bucket(int64_t tokens) {
  return std::to_string(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(tokens, 16))));
}

struct RowGroup {
  std::string by, name;
  Sum sum;
};

// Adds the groups of one kind; `name_of` says which a row is of, "" for none.
template <typename Name>
void add_groups(const std::string& by, std::span<const HeldOutRow> rows,
                std::span<const RowLoss> losses, Name name_of, std::vector<RowGroup>& out) {
  std::map<std::string, Sum> sums;
  bool any = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string name = name_of(rows[i]);
    any = any || !name.empty();
    Sum& sum = sums[name.empty() ? kNoGroup : name];
    sum.loss.loss += losses[i].loss;
    sum.loss.weight += losses[i].weight;
    sum.tokens += rows[i].tokens;
    ++sum.rows;
  }
  if (!any) return;
  std::vector<RowGroup> groups;
  for (const auto& [name, sum] : sums) groups.push_back({by, row_name(name), sum});
  std::ranges::stable_sort(groups, std::ranges::greater(),
                           [](const RowGroup& group) { return group.sum.tokens; });
  if (groups.size() > kGroupsOfKind) groups.resize(kGroupsOfKind);
  out.insert(out.end(), groups.begin(), groups.end());
}

std::vector<RowGroup> groups_of(std::span<const HeldOutRow> rows, std::span<const RowLoss> losses) {
  std::vector<RowGroup> groups;
  add_groups(
      "tag", rows, losses, [](const HeldOutRow& row) { return row.tag; }, groups);
  add_groups(
      "language", rows, losses, [](const HeldOutRow& row) { return row.language; }, groups);
  add_groups(
      "length", rows, losses, [](const HeldOutRow& row) { return length_bucket(row.tokens); },
      groups);
  return groups;
}

}  // namespace

std::string group_loss_json(int64_t step, std::span<const HeldOutRow> rows,
                            std::span<const RowLoss> losses) {
  json list = json::array();
  for (const RowGroup& group : groups_of(rows, losses)) {
    list.push_back({{"by", group.by},
                    {"name", group.name},
                    {"loss", number(group.sum.loss.mean())},
                    {"rows", std::to_string(group.sum.rows)},
                    {"tokens", std::to_string(group.sum.tokens)}});
  }
  return json{{"step", step}, {"groups", list}}.dump();
}

std::string group_loss_text(int64_t step, std::span<const HeldOutRow> rows,
                            std::span<const RowLoss> losses) {
  std::string out = "held-out loss at step " + std::to_string(step), by;
  size_t shown = 0;
  for (const RowGroup& group : groups_of(rows, losses)) {
    if (group.by != by) {
      out += (by.empty() ? " by " : "; by ") + group.by + ":";
      by = group.by;
      shown = 0;
    }
    if (++shown > kKindOfText) continue;
    out += (shown > 1 ? ", " : " ") + group.name + " " + number_text(group.sum.loss.mean());
  }
  return out;
}

std::vector<size_t> worst_rows(std::span<const RowLoss> losses, size_t count) {
  const auto badness = [&](size_t i) {
    const double mean = losses[i].mean();
    return std::isnan(mean) ? std::numeric_limits<double>::infinity() : mean;
  };
  std::vector<size_t> order(losses.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), badness);
  if (order.size() > count) order.resize(count);
  return order;
}

std::string worst_rows_json(int64_t step, const std::string& file, std::span<const HeldOutRow> rows,
                            std::span<const RowLoss> losses) {
  json list = json::array();
  for (const size_t i : worst_rows(losses)) {
    list.push_back({{"line", std::to_string(rows[i].line)},
                    {"loss", number(losses[i].mean())},
                    {"tokens", std::to_string(rows[i].tokens)},
                    {"tag", row_name(rows[i].tag)},
                    {"language", row_name(rows[i].language)}});
  }
  return json{{"step", step}, {"file", file}, {"rows", list}}.dump();
}

std::string worst_rows_text(int64_t step, const std::string& file, std::span<const HeldOutRow> rows,
                            std::span<const RowLoss> losses) {
  std::string out = "highest held-out losses at step " + std::to_string(step) + ": ";
  bool first = true;
  for (const size_t i : worst_rows(losses, kRowsOfText)) {
    out += (first ? "" : ", ") + ("line " + std::to_string(rows[i].line)) +
           (first ? " of " + file + " " : " ") + number_text(losses[i].mean());
    first = false;
  }
  return out;
}

}  // namespace dex::train
