#include "proto/gate_tasks.h"

#include <algorithm>
#include <set>
#include <utility>

#include "proto/deterministic_bytes.h"

namespace dex::proto {

namespace {

using Groupings = std::vector<std::vector<std::string>>;

constexpr const char* kAnyDim = "*";
constexpr int kOwnSubjects = 2;  // base and adapter come before others
constexpr const char* kAlwaysThere = "unseen_strings_per_100_words";  // whatever answers' match
// head_analysis': of a branch that folds; of signed maps, which a base rarely has.
constexpr const char* kOfBranch = "directions_";
constexpr const char* kOfSignedMaps = "negative_";
// Random orders of icl (evaluation_task.proto): usual ones, and at most.
constexpr uint32_t kOrders = 3, kMostOrders = 100;

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

std::string names_of_metrics(const std::string& task) {
  std::vector<std::string> names;
  for (const TaskMetric& known : task_metrics()) {
    if (known.task == task) names.push_back(known.metric);
  }
  return joined(names, ", ");
}

// Of those that measure something.
std::string names_of_tasks() {
  std::vector<std::string> names;
  const auto* oneof = dex::v1::EvaluationTask::descriptor()->FindOneofByName("task");
  for (int i = 0; i < oneof->field_count(); ++i) {
    const std::string name(oneof->field(i)->name());
    if (!names_of_metrics(name).empty()) names.push_back(name);
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

// Numbers that a dim may have as the task's options say; empty: they don't.
std::vector<uint32_t> numbers_of_dim(const dex::v1::EvaluationTask& task, const std::string& key) {
  const auto or_usual = [](const auto& given, std::vector<uint32_t> usual) {
    return given.empty() ? std::move(usual) : std::vector<uint32_t>(given.begin(), given.end());
  };
  if (task.has_multi_needle() && key == "length")
    return or_usual(task.multi_needle().lengths(), {});
  if (task.has_multi_needle() && key == "depth")
    return or_usual(task.multi_needle().depths_percent(), {0, 25, 50, 75, 100});
  if (task.has_icl() && key == "shots") return or_usual(task.icl().shots(), {0, 4, 16, 64});
  return {};
}

// The orders of worker/evaluate/in_context.h; fewer than two examples have one.
std::vector<std::string> names_of_orders(const dex::v1::IclTask& task, const std::string& shots) {
  if (shots == "0" || shots == "1") return {"random 1"};
  std::vector<std::string> names;
  const uint32_t random = task.has_n_orders() ? std::min(task.n_orders(), kMostOrders) : kOrders;
  for (uint32_t i = 1; task.order() != dex::v1::IclTask::ORDER_BY_CLASS && i <= random; ++i)
    names.push_back("random " + std::to_string(i));
  if (task.order() == dex::v1::IclTask::ORDER_BY_CLASS ||
      task.order() == dex::v1::IclTask::ORDER_BOTH) {
    names.emplace_back("by class");
    names.emplace_back("by class, last first");
  }
  return names;
}

// Values that a dim may have as the task's options say; empty: they don't.
std::vector<std::string> values_of_dim(const dex::v1::Gate& gate, const std::string& key) {
  if (gate.evaluation().has_icl() && key == "order")
    return names_of_orders(gate.evaluation().icl(), gate.dims().at("shots"));
  std::vector<std::string> values;
  for (const uint32_t number : numbers_of_dim(gate.evaluation(), key))
    values.push_back(std::to_string(number));
  return values;
}

// A row that the task's options rule out would be missed only after the training.
void check_dim_values(const dex::v1::Gate& gate, const std::string& at,
                      std::vector<BadValue>& bad) {
  for (const std::string& key : sorted_keys(gate)) {
    const std::vector<std::string> known = values_of_dim(gate, key);
    const std::string& value = gate.dims().at(key);
    if (known.empty() || std::find(known.begin(), known.end(), value) != known.end()) continue;
    bad.push_back({at + "dims", key + " must be one that the evaluation measures, " +
                                    joined(known, key == "order" ? "; " : ", ").substr(0, 200) +
                                    ", got \"" + value.substr(0, 64) + "\""});
  }
  if (gate.metric() != "order_spread") return;
  const auto& icl = gate.evaluation().icl();
  const bool random = icl.order() == dex::v1::IclTask::ORDER_UNSPECIFIED ||
                      icl.order() == dex::v1::IclTask::ORDER_RANDOM;
  const std::string& shots = gate.dims().at("shots");
  if (shots == "0" || shots == "1" || (random && icl.has_n_orders() && icl.n_orders() == 1)) {
    bad.push_back({at + "metric",
                   "order_spread needs two orders: shots of 2 or more, and n_orders of 2 or more "
                   "where the order is random"});
  }
}

// Which of its metrics a head analysis must be asked for to have this row.
dex::v1::HeadAnalysisTask::Metric head_metric_of(const std::string& metric) {
  using Task = dex::v1::HeadAnalysisTask;
  if (metric == "entropy") return Task::METRIC_ENTROPY;
  if (metric == "importance") return Task::METRIC_IMPORTANCE;
  if (metric == "cosine_distance") return Task::METRIC_COSINE_DISTANCE;
  if (metric == "cka") return Task::METRIC_CKA;
  if (metric.starts_with("hessian_")) return Task::METRIC_HESSIAN;
  return Task::METRIC_SPARSITY;
}

void check_head_metric(const dex::v1::Gate& gate, const std::string& at,
                       std::vector<BadValue>& bad) {
  using Task = dex::v1::HeadAnalysisTask;
  const auto needed = head_metric_of(gate.metric());
  const auto& asked = gate.evaluation().head_analysis().metrics();
  const bool there = asked.empty() ? needed != Task::METRIC_HESSIAN
                                   : std::find(asked.begin(), asked.end(), needed) != asked.end();
  if (!there) {
    bad.push_back({at + "metric", "\"" + gate.metric() + "\" needs " + Task::Metric_Name(needed) +
                                      " in evaluation.head_analysis.metrics" +
                                      (asked.empty() ? ", which are all but that one" : "")});
  }
  if (gate.metric().starts_with(kOfBranch) && gate.against() == dex::v1::Gate::AGAINST_BASE)
    bad.push_back({at + "against", "must be AGAINST_ABSOLUTE: the base has no branch"});
  if (gate.metric().starts_with(kOfBranch) && gate.against() == dex::v1::Gate::AGAINST_KVO_ONLY)
    bad.push_back({at + "against", "must be AGAINST_ABSOLUTE: the control has no branch"});
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
  check_dim_values(gate, at, bad);
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
  if (gate.evaluation().multi_needle().needle_counts_size() > 1) {
    bad.push_back({at + "evaluation.multi_needle.needle_counts",
                   "can't be several in a gate, which judges one figure: give n_needles"});
  }
  const std::string only = only_metric(gate.evaluation());
  if (!only.empty() && only != gate.metric() && gate.metric() != kAlwaysThere) {
    bad.push_back({at + "metric", "\"" + gate.metric() + "\" is no row of this " + task +
                                      ", whose options leave " + only});
  }
  check_dims(gate, *known, at, bad);
  if (gate.evaluation().has_head_analysis()) check_head_metric(gate, at, bad);
  return bad;
}

bool is_of_adapter_alone(const dex::v1::Gate& gate) {
  return gate.evaluation().has_head_analysis() &&
         (gate.metric().starts_with(kOfBranch) || gate.metric().starts_with(kOfSignedMaps));
}

bool needs_branch(const dex::v1::Gate& gate) {
  return gate.evaluation().has_head_analysis() && gate.metric().starts_with(kOfBranch);
}

bool compares_with_other(const dex::v1::Gate& gate) {
  return gate.against() == dex::v1::Gate::AGAINST_ADAPTER ||
         gate.against() == dex::v1::Gate::AGAINST_KVO_ONLY;
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
    if (!gate.has_evaluation() || !compares_with_other(gate) || gate.adapter().empty() ||
        !label_of_other(evaluation, gate).empty())
      continue;
    auto& subject = *evaluation.add_subjects();
    subject.set_model(base);
    subject.set_adapter(gate.adapter());
    subject.set_label("other-" + std::to_string(evaluation.subjects_size() - kOwnSubjects));
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

std::string label_of_other(const dex::v1::EvaluationSpec& evaluation, const dex::v1::Gate& gate) {
  for (int i = kOwnSubjects; i < evaluation.subjects_size(); ++i) {
    if (evaluation.subjects(i).adapter() == gate.adapter()) return evaluation.subjects(i).label();
  }
  return "";
}

int task_of_gate(const dex::v1::EvaluationSpec& evaluation, const dex::v1::Gate& gate) {
  const std::string wanted = deterministic_bytes(gate.evaluation());
  for (int i = 0; i < evaluation.tasks_size(); ++i) {
    if (deterministic_bytes(evaluation.tasks(i)) == wanted) return i;
  }
  return -1;
}

}  // namespace dex::proto
