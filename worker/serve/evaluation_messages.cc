#include "worker/serve/evaluation_messages.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "worker/evaluate/head_pictures.h"
#include "worker/evaluate/heat_map.h"
#include "worker/evaluate/report_text.h"

namespace dex::serve {
namespace {

namespace pb = dex::v1;
using evaluate::Interval;

pb::EvaluationRow::Interval interval_message(evaluate::IntervalKind kind) {
  switch (kind) {
    case evaluate::IntervalKind::kWilson:
      return pb::EvaluationRow::INTERVAL_WILSON;
    case evaluate::IntervalKind::kBootstrap:
      return pb::EvaluationRow::INTERVAL_BOOTSTRAP;
    case evaluate::IntervalKind::kNone:
      return pb::EvaluationRow::INTERVAL_NONE;
  }
  return pb::EvaluationRow::INTERVAL_NONE;
}

evaluate::IntervalKind interval_of(pb::EvaluationRow::Interval kind) {
  if (kind == pb::EvaluationRow::INTERVAL_WILSON) return evaluate::IntervalKind::kWilson;
  return kind == pb::EvaluationRow::INTERVAL_BOOTSTRAP ? evaluate::IntervalKind::kBootstrap
                                                       : evaluate::IntervalKind::kNone;
}

pb::EvaluationRow::Verdict verdict_message(evaluate::Verdict verdict) {
  switch (verdict) {
    case evaluate::Verdict::kBetter:
      return pb::EvaluationRow::VERDICT_BETTER;
    case evaluate::Verdict::kWorse:
      return pb::EvaluationRow::VERDICT_WORSE;
    case evaluate::Verdict::kNoDifference:
      return pb::EvaluationRow::VERDICT_NO_DIFFERENCE;
    case evaluate::Verdict::kDifferent:
      return pb::EvaluationRow::VERDICT_DIFFERENT;
  }
  return pb::EvaluationRow::VERDICT_NO_DIFFERENCE;
}

evaluate::Verdict verdict_of(pb::EvaluationRow::Verdict verdict) {
  if (verdict == pb::EvaluationRow::VERDICT_BETTER) return evaluate::Verdict::kBetter;
  if (verdict == pb::EvaluationRow::VERDICT_DIFFERENT) return evaluate::Verdict::kDifferent;
  return verdict == pb::EvaluationRow::VERDICT_WORSE ? evaluate::Verdict::kWorse
                                                     : evaluate::Verdict::kNoDifference;
}

bool of_head(const evaluate::ResultRow& row) {
  return evaluate::find(row.dims, "head") != nullptr;
}

// All but those of heads, in their order.
std::vector<const evaluate::ResultRow*> plain_rows(const std::vector<evaluate::ResultRow>& rows) {
  std::vector<const evaluate::ResultRow*> out;
  for (const auto& row : rows) {
    if (!of_head(row)) out.push_back(&row);
  }
  return out;
}

// The rows that a result has room for, in their order: what is over everything before what is over
// one group, those before groups of two.
std::vector<const evaluate::ResultRow*> kept_rows(std::vector<const evaluate::ResultRow*> rows,
                                                  size_t most) {
  std::ranges::stable_sort(rows, {}, [](const auto* row) { return row->dims.size(); });
  rows.resize(std::min(rows.size(), most));
  std::ranges::sort(rows);  // they lie in one array
  return rows;
}

// Rows of one metric and subject that name a head each, or two.
struct HeadRows {
  std::string metric, subject;
  bool pairs = false;
  std::vector<const evaluate::ResultRow*> rows;
};

size_t dim(const evaluate::ResultRow& row, const char* name) {
  const std::string* value = evaluate::find(row.dims, name);
  return value == nullptr ? 0 : std::stoul(*value);
}

std::vector<HeadRows> head_rows(const std::vector<evaluate::ResultRow>& rows) {
  std::vector<HeadRows> out;
  for (const auto& row : rows) {
    if (!of_head(row)) continue;
    auto at = std::ranges::find_if(out, [&](const HeadRows& each) {
      return each.metric == row.metric && each.subject == row.subject;
    });
    if (at == out.end()) {
      const bool pairs = evaluate::find(row.dims, "other") != nullptr;
      out.push_back({row.metric, row.subject, pairs, {}});
      at = std::prev(out.end());
    }
    at->rows.push_back(&row);
  }
  return out;
}

// Where the pair h < g stands in a layer's list.
size_t pair_index(size_t h, size_t g, size_t heads) {
  return h * heads - h * (h + 1) / 2 + (g - h - 1);
}

pb::HeadTable table_message(const HeadRows& from) {
  size_t layers = 0, heads = 0;
  for (const auto* row : from.rows) {
    layers = std::max(layers, dim(*row, "layer") + 1);
    heads = std::max({heads, dim(*row, "head") + 1, from.pairs ? dim(*row, "other") + 1 : 0});
  }
  pb::HeadTable out;
  out.set_metric(from.metric);
  out.set_subject(from.subject);
  out.set_heads(static_cast<uint32_t>(heads));
  out.set_pairs(from.pairs);
  const auto numbers = static_cast<int>(from.pairs ? heads * (heads - 1) / 2 : heads);
  constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
  for (size_t l = 0; l < layers; ++l) {
    auto& layer = *out.add_layers();
    for (auto* list : {layer.mutable_value(), layer.mutable_low(), layer.mutable_high()})
      list->Resize(numbers, kUndefined);
  }
  for (const auto* row : from.rows) {
    auto& layer = *out.mutable_layers(static_cast<int>(dim(*row, "layer")));
    const size_t h = dim(*row, "head");
    const auto at = static_cast<int>(from.pairs ? pair_index(h, dim(*row, "other"), heads) : h);
    layer.set_value(at, row->value);
    if (!row->interval) continue;
    layer.set_low(at, row->interval->low);
    layer.set_high(at, row->interval->high);
  }
  return out;
}

void add_head_tables(const std::vector<evaluate::ResultRow>& rows, pb::EvaluationResult& out) {
  const std::vector<HeadRows> all = head_rows(rows);
  size_t numbers = 0;
  for (const HeadRows& each : all) numbers += 3 * each.rows.size();
  const bool with_pairs = numbers <= kMostHeadNumbers;
  bool left_out = false;
  for (const HeadRows& each : all) {
    if (each.pairs && !with_pairs) {
      left_out = true;
    } else {
      *out.add_head_tables() = table_message(each);
    }
  }
  if (left_out) {
    out.add_notes(
        "the numbers of single pairs of heads are left out, there are too many; "
        "`dex-engine evaluate head_analysis` prints them");
  }
}

// Of the task at `index`.
std::string picture_name(int index, const std::string& subject) {
  return "heads-" + std::to_string(index + 1) + "-" + subject + ".svg";
}

std::vector<std::string> pictured_subjects(const pb::EvaluationResult& result) {
  std::vector<std::string> out;
  for (const auto& table : result.head_tables()) {
    if (!table.pairs() && std::ranges::find(out, table.subject()) == out.end())
      out.push_back(table.subject());
  }
  return out;
}

evaluate::HeadTable scores_of(const pb::HeadTable& table) {
  evaluate::HeadTable out;
  for (const auto& layer : table.layers())
    out.emplace_back(layer.value().begin(), layer.value().end());
  return out;
}

std::string head_picture(const pb::EvaluationResult& result, const std::string& subject) {
  std::vector<std::pair<std::string, evaluate::HeadTable>> tables;
  for (const auto& table : result.head_tables()) {
    if (!table.pairs() && table.subject() == subject)
      tables.emplace_back(table.metric(), scores_of(table));
  }
  std::vector<evaluate::PicturedScore> scores;
  for (const auto& [metric, table] : tables) scores.push_back({metric, "", table});
  return evaluate::head_scores_svg("Heads of " + subject, scores);
}

// Heat maps of every subject that has one, in the order of the rows.
std::string heat_maps(const std::vector<evaluate::ResultRow>& rows) {
  std::string out;
  std::set<std::string> seen;
  for (const auto& row : rows) {
    if (!seen.insert(row.subject).second) continue;
    for (const auto& map : evaluate::heat_maps_of(rows, "accuracy", row.subject))
      out += "\n```\n" + map + "```\n";
  }
  return out;
}

}  // namespace

pb::EvaluationRow row_message(const evaluate::ResultRow& row) {
  pb::EvaluationRow out;
  out.set_task(row.task);
  out.set_subject(row.subject);
  out.set_metric(row.metric);
  for (const auto& [key, value] : row.dims) (*out.mutable_dims())[key] = value;
  out.set_value(row.value);
  if (row.interval) {
    out.set_low(row.interval->low);
    out.set_high(row.interval->high);
  }
  out.set_confidence(row.confidence);
  out.set_interval(interval_message(row.kind));
  out.set_n(row.n);
  if (!row.comparison) return out;
  out.set_delta(row.comparison->delta);
  if (row.comparison->interval) {
    out.set_delta_low(row.comparison->interval->low);
    out.set_delta_high(row.comparison->interval->high);
  }
  out.set_verdict(verdict_message(row.comparison->verdict));
  return out;
}

evaluate::ResultRow row_of(const pb::EvaluationRow& message) {
  evaluate::ResultRow out;
  out.task = message.task();
  out.subject = message.subject();
  out.metric = message.metric();
  for (const auto& [key, value] : message.dims()) out.dims.emplace_back(key, value);
  std::ranges::sort(out.dims);
  out.value = message.value();
  if (message.has_low()) out.interval = Interval{message.low(), message.high()};
  out.confidence = message.confidence();
  out.kind = interval_of(message.interval());
  out.n = message.n();
  if (!message.has_delta()) return out;
  out.comparison.emplace();
  out.comparison->delta = message.delta();
  if (message.has_delta_low())
    out.comparison->interval = Interval{message.delta_low(), message.delta_high()};
  out.comparison->verdict = verdict_of(message.verdict());
  return out;
}

pb::EvaluationResult result_message(const EvaluateCommand& task, const std::string& file,
                                    const evaluate::Evaluation& evaluation) {
  pb::EvaluationResult out;
  out.set_task(task.task);
  out.set_file(file);
  size_t grids = 1;
  if (task.task == "multi_needle") {
    out.set_settings(evaluate::MultiNeedle::settings_text(task.multi_needle));
    grids = evaluate::MultiNeedle::settings_of(task.multi_needle).size();
  }
  const std::vector<const evaluate::ResultRow*> rows = plain_rows(evaluation.rows);
  const std::vector<const evaluate::ResultRow*> kept = kept_rows(rows, grids * kMostRows);
  for (const auto* row : kept) *out.add_rows() = row_message(*row);
  for (const std::string& note : evaluation.notes) out.add_notes(note);
  if (kept.size() < rows.size()) {
    out.add_notes("only " + std::to_string(kept.size()) + " of " + std::to_string(rows.size()) +
                  " rows are kept, those over most samples first");
  }
  add_head_tables(evaluation.rows, out);
  return out;
}

std::vector<std::pair<std::string, std::string>> head_pictures(const pb::EvaluationReport& report) {
  std::vector<std::pair<std::string, std::string>> out;
  for (int i = 0; i < report.results_size(); ++i) {
    for (const std::string& subject : pictured_subjects(report.results(i)))
      out.emplace_back(picture_name(i, subject), head_picture(report.results(i), subject));
  }
  return out;
}

std::string report_markdown(const pb::EvaluationReport& report,
                            std::span<const std::string> names) {
  std::string out;
  for (int i = 0; i < report.results_size(); ++i) {
    const auto& result = report.results(i);
    const auto index = static_cast<size_t>(i);
    const std::string name = index < names.size() ? names[index] : result.file();
    out += (i > 0 ? "\n## " : "## ") + result.task() + ": " +
           (name.empty() ? "the shipped text" : name) +
           (result.settings().empty() ? "" : " (" + result.settings() + ")") + "\n\n";
    std::vector<evaluate::ResultRow> rows;
    for (const auto& row : result.rows()) rows.push_back(row_of(row));
    out += evaluate::rows_as_markdown(rows) + heat_maps(rows);
    for (const std::string& subject : pictured_subjects(result))
      out += "\n![Heads of " + subject + "](" + picture_name(i, subject) + ")\n";
    for (const std::string& file : result.files()) out += "\n[" + file + "](" + file + ")\n";
    for (const std::string& note : result.notes()) out += "\nNote: " + note + "\n";
  }
  return out;
}

}  // namespace dex::serve
