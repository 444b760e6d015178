#include "client/cli/study_tasks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/terminal.h"

namespace dex::cli {

namespace {

constexpr int kFigureDigits = 4;

using FigureKey = std::pair<size_t, std::string>;  // task, metric

std::string metric_of(const v1::EvaluationRow& row) {
  const std::map<std::string, std::string> dims(row.dims().begin(), row.dims().end());
  std::string groups;
  for (const auto& [key, value] : dims) {
    groups += groups.empty() ? " [" : ", ";
    groups += key + " " + value;
  }
  return row.metric() + groups + (groups.empty() ? "" : "]");
}

const TaskFigure* figure_of(const RunResult& result, const FigureKey& key) {
  const auto at = std::find_if(
      result.tasks.begin(), result.tasks.end(),
      [&](const TaskFigure& each) { return each.task == key.first && each.metric == key.second; });
  return at == result.tasks.end() ? nullptr : &*at;
}

// Of a method's run with that seed; null: it has failed, or was not measured.
const TaskFigure* figure_of(const std::vector<RunResult>& results, const std::string& method,
                            uint64_t seed, const FigureKey& key) {
  for (const RunResult& result : results) {
    if (result.run.method == method && result.run.seed == seed && result.failure.empty())
      return figure_of(result, key);
  }
  return nullptr;
}

std::vector<FigureKey> keys_of(const std::vector<RunResult>& results, const std::string& method) {
  std::vector<FigureKey> keys;
  for (const RunResult& result : results) {
    if (result.run.method != method || !result.failure.empty()) continue;
    for (const TaskFigure& each : result.tasks) {
      const FigureKey key(each.task, each.metric);
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  return keys;
}

TaskSummary summary_of(const StudyPlan& plan, const std::vector<RunResult>& results,
                       const std::string& method, const FigureKey& key) {
  TaskSummary out;
  out.task = key.first;
  out.metric = key.second;
  std::vector<double> values, from_base, from_control;
  for (const uint64_t seed : plan.seeds) {
    const TaskFigure* own = figure_of(results, method, seed, key);
    if (own == nullptr || !std::isfinite(own->value) || !std::isfinite(own->base)) continue;
    out.base_min = values.empty() ? own->base : std::min(out.base_min, own->base);
    out.base_max = values.empty() ? own->base : std::max(out.base_max, own->base);
    values.push_back(own->value);
    from_base.push_back(own->value - own->base);
    const TaskFigure* control =
        method == kControl ? nullptr : figure_of(results, kControl, seed, key);
    if (control != nullptr && std::isfinite(control->value))
      from_control.push_back(own->value - control->value);
  }
  if (!values.empty()) out.value = t_interval(values);
  if (!from_base.empty()) out.against_base = t_interval(from_base);
  if (!from_control.empty()) out.against_control = t_interval(from_control);
  return out;
}

const TaskSummary* summary_in(const MethodSummary& row, const FigureKey& key) {
  const auto at = std::find_if(row.tasks.begin(), row.tasks.end(), [&](const TaskSummary& each) {
    return each.task == key.first && each.metric == key.second;
  });
  return at == row.tasks.end() ? nullptr : &*at;
}

// Metrics that some method has of the task, in the order in which they come.
std::vector<std::string> metrics_in(const std::vector<MethodSummary>& rows, size_t task) {
  std::vector<std::string> metrics;
  for (const MethodSummary& row : rows) {
    for (const TaskSummary& each : row.tasks) {
      if (each.task == task &&
          std::find(metrics.begin(), metrics.end(), each.metric) == metrics.end())
        metrics.push_back(each.metric);
    }
  }
  return metrics;
}

std::string difference_cell(const Interval& difference) {
  if (difference.n == 0) return "–";
  return text(difference, kFigureDigits) + (difference.excludes_zero() ? " ≠" : "");
}

// The base, then each method.
void write_metric(std::ostream& out, const std::vector<MethodSummary>& rows, const FigureKey& key) {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const MethodSummary& row : rows) {
    const TaskSummary* found = summary_in(row, key);
    if (found == nullptr) continue;
    least = std::min(least, found->base_min);
    most = std::max(most, found->base_max);
  }
  const std::string low = fixed(least, kFigureDigits), high = fixed(most, kFigureDigits);
  out << "| " << key.second << " | base | " << low << (low == high ? "" : "–" + high) << " | | |\n";
  for (const MethodSummary& row : rows) {
    const TaskSummary* found = summary_in(row, key);
    if (found == nullptr) continue;
    out << "| " << key.second << " | `" << row.method << "` | " << text(found->value, kFigureDigits)
        << " | " << difference_cell(found->against_base) << " | "
        << difference_cell(found->against_control) << " |\n";
  }
}

}  // namespace

std::vector<TaskFigure> task_figures(const v1::Evaluation& evaluation) {
  std::vector<TaskFigure> out;
  if (evaluation.spec().subjects_size() < 2) return out;
  const std::string& base = evaluation.spec().subjects(0).label();
  const std::string& result = evaluation.spec().subjects(1).label();
  for (int i = 0; i < evaluation.results_size(); ++i) {
    const auto& rows = evaluation.results(i).rows();
    int fewest = std::numeric_limits<int>::max();
    for (const auto& row : rows) fewest = std::min(fewest, static_cast<int>(row.dims_size()));
    for (const auto& row : rows) {
      if (row.subject() != result || row.dims_size() != fewest) continue;
      const std::string metric = metric_of(row);
      const auto of_base = std::find_if(rows.begin(), rows.end(), [&](const auto& other) {
        return other.subject() == base && metric_of(other) == metric;
      });
      if (of_base == rows.end()) continue;  // what only a branch has
      out.push_back({static_cast<size_t>(i), metric, of_base->value(), row.value(), row.n()});
    }
  }
  return out;
}

std::vector<TaskSummary> summarise_tasks(const StudyPlan& plan,
                                         const std::vector<RunResult>& results,
                                         const std::string& method) {
  std::vector<TaskSummary> out;
  for (const FigureKey& key : keys_of(results, method)) {
    TaskSummary summary = summary_of(plan, results, method, key);
    if (summary.value.n > 0) out.push_back(std::move(summary));
  }
  return out;
}

void write_tasks(std::ostream& out, const StudyPlan& plan, const std::vector<MethodSummary>& rows) {
  bool any = false;
  for (size_t task = 0; task < plan.tasks.size(); ++task) {
    const std::vector<std::string> metrics = metrics_in(rows, task);
    if (metrics.empty()) continue;
    any = true;
    out << "`" << plan.tasks[task].name << "`\n\n| metric | method | value | against the base | "
        << "against " << kControl << " |\n| --- | --- | --- | --- | --- |\n";
    for (const std::string& metric : metrics) write_metric(out, rows, {task, metric});
    out << "\n";
  }
  if (!any) return;
  out << "Tasks as `dexctl evaluations` measures them, on base and result over the same items: "
         "mean over seeds with its 95 % Student interval, differences paired by seed; higher or "
         "lower is better as the metric has it. ≠: the interval over the seeds leaves out 0; "
         "differences that are the same in all seeds have none, and are not called one. What "
         "chance in the items does is in the intervals of the evaluations themselves.\n\n";
}

void add_tasks(const StudyPlan& plan, const RunResult& result, nlohmann::json& run) {
  if (!result.evaluation.empty()) run["evaluation"] = result.evaluation;
  if (result.tasks.empty()) return;
  run["tasks"] = nlohmann::json::array();
  for (const TaskFigure& each : result.tasks) {
    run["tasks"].push_back({{"task", plan.tasks.at(each.task).name},
                            {"metric", each.metric},
                            {"base", each.base},
                            {"value", each.value},
                            {"n", each.n}});
  }
}

void add_tasks(const StudyPlan& plan, const MethodSummary& row, nlohmann::json& method) {
  if (row.tasks.empty()) return;
  method["tasks"] = nlohmann::json::array();
  for (const TaskSummary& each : row.tasks) {
    method["tasks"].push_back({{"task", plan.tasks.at(each.task).name},
                               {"metric", each.metric},
                               {"base_min", each.base_min},
                               {"base_max", each.base_max},
                               {"value", to_json(each.value)},
                               {"against_base", to_json(each.against_base)},
                               {"against_kvo_only", to_json(each.against_control)}});
  }
}

}  // namespace dex::cli
