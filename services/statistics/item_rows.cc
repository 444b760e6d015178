#include "services/statistics/item_rows.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace dex::statistics {

namespace {

using nlohmann::json;

base::Status no_items(const std::string& what) {
  return {base::Code::kDataLoss, "ARTIFACT_CORRUPT", "the numbers by item " + what};
}

std::string line_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string line_of(const ItemRow& row) {
  json values = json::array(), weights = json::array();
  bool weighted = false;
  for (const Number& number : row.numbers) {
    values.push_back(number.value);
    weights.push_back(number.weight);
    weighted = weighted || number.weight != 1;
  }
  json out = {{"metric", row.metric},
              {"subject", row.subject},
              {"dims", row.dims},
              {"rule",
               {{"shares", row.rule.shares},
                {"lower_is_better", row.rule.lower_is_better},
                {"exponential", row.rule.exponential},
                {"judged", row.rule.judged}}},
              {"items", row.items},
              {"values", std::move(values)}};
  if (weighted) out["weights"] = std::move(weights);
  return line_of(out);
}

// JSON has no word for what is not finite, so such a number was written as null.
std::vector<double> numbers_in(const json& list) {
  std::vector<double> out;
  for (const json& number : list) {
    out.push_back(number.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                   : number.get<double>());
  }
  return out;
}

// Throws what nlohmann throws for a line of another shape.
ItemRow row_of(const json& line) {
  ItemRow row;
  row.metric = line.at("metric").get<std::string>();
  row.subject = line.at("subject").get<std::string>();
  row.dims = line.at("dims").get<std::map<std::string, std::string>>();
  const json& rule = line.at("rule");
  row.rule = {rule.at("shares").get<bool>(), rule.at("lower_is_better").get<bool>(),
              rule.at("exponential").get<bool>(), rule.at("judged").get<bool>()};
  row.items = line.at("items").get<std::vector<int64_t>>();
  const std::vector<double> values = numbers_in(line.at("values"));
  const std::vector<double> weights = line.contains("weights")
                                          ? numbers_in(line.at("weights"))
                                          : std::vector<double>(values.size(), 1);
  for (size_t i = 0; i < values.size() && i < weights.size(); ++i)
    row.numbers.push_back({values[i], weights[i]});
  return row;
}

bool is_whole(const ItemRow& row) {
  const bool ascending =
      std::ranges::adjacent_find(row.items, std::ranges::greater_equal()) == row.items.end();
  return ascending && row.items.size() == row.numbers.size();
}

base::Status add_line(std::string_view text, bool first, TaskItems& out) {
  const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return no_items("have a line that is no JSON object");
  try {
    if (first) {
      out.task = line.at("task").get<std::string>();
      out.files = line.at("files").get<std::vector<std::string>>();
      out.left_out = line.at("left_out").get<int64_t>();
      return {};
    }
    out.rows.push_back(row_of(line));
  } catch (const json::exception& error) {
    return no_items(std::string("have a line of another shape: ") + error.what());
  }
  return is_whole(out.rows.back()) ? base::Status() : no_items("have items without a number");
}

}  // namespace

std::string items_text(const TaskItems& items, size_t most) {
  std::vector<const ItemRow*> order;
  for (const ItemRow& row : items.rows) order.push_back(&row);
  std::ranges::stable_sort(order, {}, [](const ItemRow* row) { return row->dims.size(); });
  std::string rows;
  int64_t left_out = items.left_out;
  for (const ItemRow* row : order) {
    std::string line = line_of(*row);
    if (rows.size() + line.size() > most) {
      ++left_out;
    } else {
      rows += line;
    }
  }
  const json head = {{"task", items.task}, {"files", items.files}, {"left_out", left_out}};
  return line_of(head) + rows;
}

base::Result<TaskItems> parse_items(std::string_view text) {
  TaskItems out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    DEX_RETURN_IF_ERROR(add_line(text.substr(begin, end - begin), begin == 0, out));
    begin = end + 1;
  }
  if (out.task.empty()) return no_items("name no task");
  return out;
}

const ItemRow* find_row(const TaskItems& items, const std::string& metric,
                        const std::map<std::string, std::string>& dims,
                        const std::string& subject) {
  const auto found = std::ranges::find_if(items.rows, [&](const ItemRow& row) {
    return row.metric == metric && row.subject == subject && row.dims == dims;
  });
  return found == items.rows.end() ? nullptr : &*found;
}

Pairs pairs_of(const ItemRow& base, const ItemRow& subject) {
  Pairs out;
  size_t s = 0;
  for (size_t b = 0; b < base.items.size(); ++b) {
    while (s < subject.items.size() && subject.items[s] < base.items[b]) ++s;
    if (s == subject.items.size() || subject.items[s] != base.items[b]) continue;
    out.base.push_back(base.numbers[b]);
    out.subject.push_back(subject.numbers[s]);
  }
  out.complete = out.base.size() == base.items.size() && out.base.size() == subject.items.size();
  return out;
}

}  // namespace dex::statistics
