#include "scheduler/server/evaluation_comparison.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/task_files.h"
#include "scheduler/core/evaluation_spec.h"
#include "scheduler/core/fields.h"
#include "scheduler/server/evaluation_view.h"
#include "scheduler/server/published_file.h"
#include "services/statistics/item_rows.h"

namespace dex::server {

namespace {

// Of a task, so that a reply stays below gRPC's 4 MiB.
constexpr int kMostDifferences = 500;

using Items = std::optional<statistics::TaskItems>;

base::Status no_comparison(const std::string& what) {
  return base::Status(base::Code::kInvalidArgument, "CONFLICTING_FIELDS",
                      "the two evaluations can't be compared: " + what)
      .with_violation("b", what);
}

// One of the two sides: what was asked and what it has published.
class Side {
 public:
  Side(const store::JobRecord& record, const DataLayout& layout)
      : spec(stored_evaluation(record.spec)), record_(record), layout_(layout) {}

  base::Status open() {
    DEX_ASSIGN_OR_RETURN(const auto published,
                         evaluation_checksums(record_, layout_, "what it measured is"));
    for (const auto& [name, hash] : published) names_.insert(name);
    return {};
  }

  // Of the task at that place; nothing: it has none, or a worker of before kept none.
  [[nodiscard]] base::Result<Items> items(int task) const {
    const std::string name = "items-" + std::to_string(task + 1) + ".jsonl";
    if (!names_.contains(name)) return Items();
    DEX_ASSIGN_OR_RETURN(const std::string text, published_file(record_, layout_, name));
    auto items = statistics::parse_items(text);
    if (!items.ok()) return corrupt_results(record_.id, name + ": " + items.status().message());
    return Items(std::move(items).value());
  }

  [[nodiscard]] std::string base_model() const {
    return spec.subjects().empty() ? "" : spec.subjects(0).model();
  }
  [[nodiscard]] const std::string& id() const { return record_.id; }

  const v1::EvaluationSpec spec;

 private:
  const store::JobRecord& record_;
  const DataLayout& layout_;
  std::set<std::string> names_;
};

// Texts are the same items for models of one tokenizer and context only.
base::Status check_models(const Side& a, const Side& b, const ModelCatalog& models) {
  if (a.base_model() == b.base_model()) return {};
  const auto one = models.find(a.base_model()), other = models.find(b.base_model());
  const bool same = one.ok() && other.ok() && !one->tokenizer_sha256().empty() &&
                    one->tokenizer_sha256() == other->tokenizer_sha256() &&
                    one->context_length() == other->context_length();
  if (same) return {};
  return no_comparison("they are of " + a.base_model() + " and " + b.base_model() +
                       ", which cut texts into other tokens or windows, as far as is known here");
}

base::Status check_seeds(const Side& a, const Side& b) {
  if (a.spec.seed() == b.spec.seed()) return {};
  return no_comparison("their samples were drawn with seed " + std::to_string(a.spec.seed()) +
                       " and " + std::to_string(b.spec.seed()));
}

struct SubjectPair {
  std::string a, b;
};

base::Status check_label(const v1::EvaluationSpec& spec, const std::string& field,
                         const std::string& label) {
  std::string labels;
  for (const auto& subject : spec.subjects()) {
    if (subject.label() == label) return {};
    labels += (labels.empty() ? "" : ", ") + subject.label();
  }
  return base::invalid_field(field, "must be one of " + labels + ", got '" + label + "'");
}

base::Result<std::vector<SubjectPair>> subject_pairs(const v1::EvaluationSpec& a,
                                                     const v1::EvaluationSpec& b,
                                                     const v1::CompareEvaluationsRequest& request) {
  const std::string &label_a = request.subject_a(), &label_b = request.subject_b();
  if (label_a.empty() != label_b.empty()) {
    return base::invalid_field(label_a.empty() ? "subject_a" : "subject_b",
                               "is missing: give a subject of each, or neither");
  }
  if (!label_a.empty()) {
    DEX_RETURN_IF_ERROR(check_label(a, "subject_a", label_a));
    DEX_RETURN_IF_ERROR(check_label(b, "subject_b", label_b));
    return std::vector<SubjectPair>{{label_a, label_b}};
  }
  if (a.subjects_size() != b.subjects_size()) {
    return base::invalid_field("subject_a",
                               "is missing: one has " + std::to_string(a.subjects_size()) +
                                   " subjects and the other " + std::to_string(b.subjects_size()) +
                                   ", so name one of each");
  }
  std::vector<SubjectPair> pairs;
  for (int i = 0; i < a.subjects_size(); ++i)
    pairs.push_back({a.subjects(i).label(), b.subjects(i).label()});
  return pairs;
}

// What two tasks of one kind are asked otherwise, but for their files.
std::vector<std::string> option_differences(v1::EvaluationTask a, v1::EvaluationTask b) {
  std::set<std::string> paths;
  for (v1::EvaluationTask* task : {&a, &b}) {
    for (const auto& file : proto::task_files(*task)) proto::set_task_file(*task, file.field, "");
    core::for_each_set_field(*task, [&paths](const std::string& path) { paths.insert(path); });
  }
  std::vector<std::string> out;
  const auto text = [](const v1::EvaluationTask& task, const std::string& path) {
    return core::has_field(task, path) ? core::field_text(task, path) : std::string("unset");
  };
  for (const std::string& path : paths) {
    if (!core::same_field(a, b, path))
      out.push_back(path + " is " + text(a, path) + " and " + text(b, path));
  }
  return out;
}

bool same_files(const statistics::TaskItems& a, const statistics::TaskItems& b) {
  const bool known = std::find(a.files.begin(), a.files.end(), "") == a.files.end();
  return known && !a.files.empty() && a.files == b.files;
}

std::string place(const v1::EvaluationSpec& spec, int task) {
  return "tasks[" + std::to_string(task) + "] " + core::task_name(spec.tasks(task));
}

// A task of `a` and its counterpart in `b`, or why it has none.
struct TaskPair {
  int a = 0, b = -1;
  statistics::TaskItems items_a, items_b;
  std::string why_not;
};

base::Result<TaskPair> counterpart(const Side& a, const Side& b, int task) {
  TaskPair pair{.a = task, .why_not = place(a.spec, task) + " is in a alone"};
  DEX_ASSIGN_OR_RETURN(Items items_a, a.items(task));
  if (!items_a) {
    pair.why_not = place(a.spec, task) +
                   " has no numbers by item in a: it measures nothing, or a " +
                   "worker of before kept none";
    return pair;
  }
  for (int i = 0; i < b.spec.tasks_size(); ++i) {
    if (core::task_name(b.spec.tasks(i)) != core::task_name(a.spec.tasks(task))) continue;
    const auto differences = option_differences(a.spec.tasks(task), b.spec.tasks(i));
    const std::string of = place(a.spec, task) + " of a and " + place(b.spec, i) + " of b: ";
    if (!differences.empty()) {
      pair.why_not = of + differences.front();
      continue;
    }
    DEX_ASSIGN_OR_RETURN(Items items_b, b.items(i));
    if (!items_b) {
      pair.why_not = of + "b has no numbers by item, a worker of before kept none";
    } else if (!same_files(*items_a, *items_b)) {
      pair.why_not = of + "their files have other bytes";
    } else {
      pair.b = i;
      pair.items_a = *std::move(items_a);
      pair.items_b = *std::move(items_b);
      return pair;
    }
  }
  return pair;
}

v1::EvaluationRow::Verdict verdict_message(statistics::Verdict verdict) {
  switch (verdict) {
    case statistics::Verdict::kBetter:
      return v1::EvaluationRow::VERDICT_BETTER;
    case statistics::Verdict::kWorse:
      return v1::EvaluationRow::VERDICT_WORSE;
    case statistics::Verdict::kNoDifference:
      return v1::EvaluationRow::VERDICT_NO_DIFFERENCE;
    case statistics::Verdict::kDifferent:
      return v1::EvaluationRow::VERDICT_DIFFERENT;
  }
  return v1::EvaluationRow::VERDICT_UNSPECIFIED;
}

v1::EvaluationDifference difference_message(const TaskPair& tasks, const statistics::ItemRow& a,
                                            const statistics::ItemRow& b,
                                            const statistics::Comparison& found,
                                            double confidence) {
  v1::EvaluationDifference out;
  out.set_task(tasks.items_a.task);
  out.set_task_a(static_cast<uint32_t>(tasks.a));
  out.set_task_b(static_cast<uint32_t>(tasks.b));
  out.set_metric(a.metric);
  for (const auto& [key, value] : a.dims) (*out.mutable_dims())[key] = value;
  out.set_subject_a(a.subject);
  out.set_subject_b(b.subject);
  out.set_value_a(statistics::figure(a.numbers, a.rule));
  out.set_value_b(statistics::figure(b.numbers, b.rule));
  out.set_delta(found.delta);
  if (found.interval) {
    out.set_delta_low(found.interval->low);
    out.set_delta_high(found.interval->high);
  }
  out.set_confidence(confidence);
  out.set_verdict(verdict_message(found.verdict));
  out.set_n(found.n);
  return out;
}

// Collects what the reply says.
class Differences {
 public:
  Differences(const v1::EvaluationSpec& a, const std::vector<SubjectPair>& subjects,
              const std::stop_token& stop)
      : subjects_(subjects),
        stop_(stop),
        options_{.confidence = a.confidence(), .seed = static_cast<uint64_t>(a.seed())} {}

  // Fails where the same row is over other items, and once nobody waits any more.
  base::Status add(const TaskPair& tasks) {
    int added = 0, alone = 0, left_out = 0;
    std::vector<statistics::Comparison> comparisons;
    for (const auto& row : tasks.items_a.rows) {
      for (const SubjectPair& subjects : subjects_) {
        if (row.subject != subjects.a) continue;
        const auto* other = statistics::find_row(tasks.items_b, row.metric, row.dims, subjects.b);
        if (other == nullptr || other->rule != row.rule) {
          ++alone;
          continue;
        }
        if (added == kMostDifferences) {
          ++left_out;
          continue;
        }
        if (stop_.stop_requested()) return nobody_waits();
        const auto pairs = statistics::pairs_of(row, *other);
        if (!pairs.complete) return other_items(tasks, row, *other, pairs);
        const auto found = statistics::compare(pairs.base, pairs.subject, row.rule, options_);
        if (!found) continue;
        *reply.add_differences() =
            difference_message(tasks, row, *other, *found, options_.confidence);
        comparisons.push_back(*found);
        ++added;
      }
    }
    const std::string of = tasks.items_a.task + ": ";
    if (alone > 0) note(of + std::to_string(alone) + " rows of a have no counterpart in b");
    if (left_out > 0) note(of + std::to_string(left_out) + " rows over fewer samples are left out");
    for (const std::string& text : statistics::verdict_notes(comparisons, options_.confidence))
      note(text);
    return {};
  }

  // Once each.
  void note(const std::string& text) {
    const auto& notes = reply.notes();
    if (std::find(notes.begin(), notes.end(), text) == notes.end()) reply.add_notes(text);
  }

  v1::CompareEvaluationsResponse reply;

 private:
  static base::Status other_items(const TaskPair& tasks, const statistics::ItemRow& row,
                                  const statistics::ItemRow& other,
                                  const statistics::Pairs& pairs) {
    return no_comparison(tasks.items_a.task + " " + row.metric +
                         " is over other items: " + std::to_string(row.items.size()) +
                         " in a and " + std::to_string(other.items.size()) + " in b, of which " +
                         std::to_string(pairs.base.size()) + " are the same");
  }

  // Its call has ended: that is what it was told.
  static base::Status nobody_waits() {
    return {base::Code::kCancelled, "CLIENT_CANCELLED", "nobody waits for the comparison any more"};
  }

  const std::vector<SubjectPair>& subjects_;
  const std::stop_token stop_;
  const statistics::BootstrapOptions options_;
};

}  // namespace

base::Result<v1::CompareEvaluationsResponse> compare_evaluations(
    const store::JobRecord& record_a, const store::JobRecord& record_b, const ModelCatalog& models,
    const DataLayout& layout, const v1::CompareEvaluationsRequest& request,
    const std::stop_token& stop) {
  Side a(record_a, layout), b(record_b, layout);
  DEX_RETURN_IF_ERROR(a.open());
  DEX_RETURN_IF_ERROR(b.open());
  DEX_ASSIGN_OR_RETURN(const auto subjects, subject_pairs(a.spec, b.spec, request));
  DEX_RETURN_IF_ERROR(check_models(a, b, models));
  DEX_RETURN_IF_ERROR(check_seeds(a, b));
  Differences differences(a.spec, subjects, stop);
  std::string reasons;
  for (int task = 0; task < a.spec.tasks_size(); ++task) {
    DEX_ASSIGN_OR_RETURN(const TaskPair pair, counterpart(a, b, task));
    if (pair.b >= 0) {
      DEX_RETURN_IF_ERROR(differences.add(pair));
    } else {
      differences.note("not compared: " + pair.why_not);
      reasons += (reasons.empty() ? "" : "; ") + pair.why_not;
    }
  }
  if (differences.reply.differences().empty())
    return no_comparison(reasons.empty() ? "they have no row in common" : reasons);
  differences.reply.set_a(a.id());
  differences.reply.set_b(b.id());
  return std::move(differences.reply);
}

}  // namespace dex::server
