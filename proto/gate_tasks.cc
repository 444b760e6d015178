#include "proto/gate_tasks.h"

#include <algorithm>
#include <set>
#include <utility>

#include "proto/deterministic_bytes.h"

namespace dex::proto {

namespace {

using Groupings = std::vector<std::vector<std::string>>;

constexpr const char* kAnyDim = "*";
constexpr const char* kAlwaysThere = "unseen_strings_per_100_words";  // whatever answers' match

void add_metrics(const std::string& task, const std::vector<std::string>& metrics,
                 const Groupings& groupings, std::vector<TaskMetric>& out) {
  for (const std::string& metric : metrics) out.push_back({task, metric, groupings});
}

std::vector<TaskMetric> make_task_metrics() {
  std::vector<TaskMetric> out;
  add_metrics("perplexity", {"loss", "perplexity", "bits_per_byte"},
              {{}, {"tag"}, {"language"}, {"length_bucket"}}, out);
  add_metrics("multi_needle", {"accuracy", "all", "attention_answer", "attention_noise"},
              {{}, {"length"}, {"depth", "length"}}, out);
  add_metrics("multi_needle",
              {"attention_other_needles", "attention_filler", "attention_first_token",
               "attention_question"},
              {{}, {"length"}}, out);
  add_metrics("multiple_choice", {"acc", "acc_norm", "acc_per_token"}, {{}, {kAnyDim}}, out);
  add_metrics("icl", {"accuracy", "order_spread"}, {{"shots"}}, out);
  add_metrics("icl", {"accuracy_of_order"}, {{"order", "shots"}}, out);
  add_metrics("answers", {"exact", "contains", "f1", "unseen_strings_per_100_words"}, {{}}, out);
  // Numbers of single heads are no rows but tables (evaluation.proto, HeadTable).
  add_metrics("head_analysis",
              {"entropy", "importance", "cosine_distance", "cka", "sparsity", "negative_share",
               "negative_mass", "directions_below_zero", "directions_below_half"},
              {{}, {"layer"}}, out);
  // Not hessian_histogram: its ranges are known once it is measured.
  add_metrics("head_analysis", {"hessian_eigenvalue", "hessian_negative_share"}, {{}}, out);
  return out;
}

std::string joined(const std::vector<std::string>& words, const std::string& between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string names_of_tasks() {
  std::vector<std::string> names;
  const auto* oneof = dex::v1::EvaluationTask::descriptor()->FindOneofByName("task");
  for (int i = 0; i < oneof->field_count(); ++i) names.push_back(oneof->field(i)->name());
  return joined(names, ", ");
}

std::string names_of_metrics(const std::string& task) {
  std::vector<std::string> names;
  for (const TaskMetric& known : task_metrics()) {
    if (known.task == task) names.push_back(known.metric);
  }
  return joined(names, ", ");
}

std::vector<std::string> sorted_keys(const dex::v1::Gate& gate) {
  std::set<std::string> keys;
  for (const auto& [key, value] : gate.dims()) keys.insert(key);
  return {keys.begin(), keys.end()};
}

bool allows(const Groupings& groupings, const std::vector<std::string>& keys) {
  return std::any_of(groupings.begin(), groupings.end(), [&keys](const auto& grouping) {
    const bool any = grouping.size() == 1 && grouping.front() == kAnyDim;
    return grouping == keys || (any && keys.size() == 1);
  });
}

// "none, length, or depth and length"
std::string words_of(const Groupings& groupings) {
  std::vector<std::string> words;
  for (const auto& grouping : groupings) {
    const bool any = grouping.size() == 1 && grouping.front() == kAnyDim;
    words.push_back(grouping.empty() ? "none"
                    : any            ? "one of the file"
                                     : joined(grouping, " and "));
  }
  return joined(words, ", or ");
}

// Where the task is told to have one row of several: that row's metric.
std::string only_metric(const dex::v1::EvaluationTask& task) {
  switch (task.multiple_choice().score()) {
    case dex::v1::MultipleChoiceTask::SCORE_SUM:
      return "acc";
    case dex::v1::MultipleChoiceTask::SCORE_PER_TOKEN:
      return "acc_per_token";
    case dex::v1::MultipleChoiceTask::SCORE_PER_BYTE:
      return "acc_norm";
    default:
      break;
  }
  switch (task.answers().match()) {
    case dex::v1::AnswersTask::MATCH_EXACT:
      return "exact";
    case dex::v1::AnswersTask::MATCH_CONTAINS:
      return "contains";
    case dex::v1::AnswersTask::MATCH_F1:
      return "f1";
    default:
      return "";
  }
}

void check_dims(const dex::v1::Gate& gate, const TaskMetric& metric, const std::string& at,
                std::vector<BadValue>& bad) {
  const std::vector<std::string> keys = sorted_keys(gate);
  if (!allows(metric.groupings, keys)) {
    bad.push_back({at + "dims", "of " + metric.task + " " + metric.metric + " may be " +
                                    words_of(metric.groupings) + "; got " +
                                    (keys.empty() ? "none" : joined(keys, " and ")).substr(0, 64)});
    return;
  }
  if (!gate.evaluation().has_perplexity() || keys.empty()) return;
  const auto& grouped = gate.evaluation().perplexity().group_by();
  if (std::find(grouped.begin(), grouped.end(), keys.front()) == grouped.end()) {
    bad.push_back({at + "dims", keys.front() + " needs evaluation.perplexity.group_by to have it"});
  }
}

}  // namespace

std::string name_of_task(const dex::v1::EvaluationTask& task) {
  const auto* oneof = dex::v1::EvaluationTask::descriptor()->FindOneofByName("task");
  const auto* field = task.GetReflection()->GetOneofFieldDescriptor(task, oneof);
  return field == nullptr ? "" : field->name();
}

const std::vector<TaskMetric>& task_metrics() {
  static const std::vector<TaskMetric> list = make_task_metrics();
  return list;
}

std::vector<BadValue> bad_task_gate(const dex::v1::Gate& gate, const std::string& at) {
  std::vector<BadValue> bad;
  const std::string task = name_of_task(gate.evaluation());
  if (task.empty()) {
    bad.push_back({at + "evaluation", "must be one of " + names_of_tasks()});
    return bad;
  }
  if (gate.has_task() && gate.task() != task) {
    bad.push_back({at + "task", "must be " + task + " like evaluation, or be left out, got \"" +
                                    gate.task().substr(0, 64) + "\""});
  }
  if (names_of_metrics(task).empty()) {
    bad.push_back({at + "evaluation", "can't be " + task + ", which measures nothing"});
    return bad;
  }
  const auto& list = task_metrics();
  const auto known = std::find_if(list.begin(), list.end(), [&](const TaskMetric& each) {
    return each.task == task && each.metric == gate.metric();
  });
  if (known == list.end()) {
    bad.push_back({at + "metric", "\"" + gate.metric().substr(0, 64) + "\" is not a metric of " +
                                      task + ": use one of " + names_of_metrics(task)});
    return bad;
  }
  const std::string only = only_metric(gate.evaluation());
  if (!only.empty() && only != gate.metric() && gate.metric() != kAlwaysThere) {
    bad.push_back({at + "metric", "\"" + gate.metric() + "\" is no row of this " + task +
                                      ", whose options leave " + only});
  }
  check_dims(gate, *known, at, bad);
  return bad;
}

bool has_task_gates(const dex::v1::FineTuningJobSpec& spec) {
  return std::any_of(spec.gates().begin(), spec.gates().end(),
                     [](const dex::v1::Gate& gate) { return gate.has_evaluation(); });
}

dex::v1::EvaluationSpec gate_evaluation(const dex::v1::FineTuningJobSpec& spec,
                                        const std::string& base, const std::string& adapter) {
  dex::v1::EvaluationSpec evaluation;
  for (const auto& [label, id] : {std::pair<std::string, std::string>{kBaseSubject, ""},
                                  std::pair<std::string, std::string>{kAdapterSubject, adapter}}) {
    auto& subject = *evaluation.add_subjects();
    subject.set_model(base);
    subject.set_adapter(id);
    subject.set_label(label);
  }
  for (const auto& gate : spec.gates()) {
    if (gate.has_evaluation() && task_of_gate(evaluation, gate) < 0)
      *evaluation.add_tasks() = gate.evaluation();
  }
  // The same for every job, so that two jobs' figures are over the same samples.
  evaluation.set_seed(0);
  evaluation.set_confidence(0.95);
  return evaluation;
}

int task_of_gate(const dex::v1::EvaluationSpec& evaluation, const dex::v1::Gate& gate) {
  const std::string wanted = deterministic_bytes(gate.evaluation());
  for (int i = 0; i < evaluation.tasks_size(); ++i) {
    if (deterministic_bytes(evaluation.tasks(i)) == wanted) return i;
  }
  return -1;
}

}  // namespace dex::proto
