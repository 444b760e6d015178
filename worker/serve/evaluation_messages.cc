#include "worker/serve/evaluation_messages.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "worker/evaluate/heat_map.h"
#include "worker/evaluate/report_text.h"

namespace dex::serve {
namespace {

namespace pb = dex::v1;
using evaluate::Interval;
using internal::v1::EvaluatorStart;

[[noreturn]] void contradiction(const std::string& what) {
  throw EvaluationFailure(EvaluationFailure::Kind::kEngine, "the evaluation's start frame " + what,
                          "");
}

// Paths of the files that the spec names by id.
class FilePaths {
 public:
  explicit FilePaths(const EvaluatorStart& start) {
    for (const auto& file : start.files()) paths_[file.file()] = file.path();
  }
  [[nodiscard]] const std::string& of(const std::string& id) const {
    const auto at = paths_.find(id);
    if (at == paths_.end() || at->second.empty()) contradiction("has no file " + id);
    return at->second;
  }

 private:
  std::map<std::string, std::string> paths_;
};

std::string format_name(pb::TextFormat format) {
  if (format == pb::TEXT_FORMAT_RAW) return "raw";
  return format == pb::TEXT_FORMAT_JSONL ? "jsonl" : "auto";
}

template <typename List>
std::vector<int32_t> numbers(const List& list, std::vector<int32_t> otherwise) {
  if (list.empty()) return otherwise;
  return {list.begin(), list.end()};
}

void fill(const pb::PerplexityTask& task, const FilePaths& files, EvaluateCommand& out) {
  out.file = files.of(task.file());
  out.format = format_name(task.format());
  auto& options = out.perplexity;
  if (task.has_context_length())
    options.context_length = static_cast<int32_t>(task.context_length());
  if (task.has_stride()) options.stride = static_cast<int32_t>(task.stride());
  if (task.has_max_tokens()) options.max_tokens = task.max_tokens();
  options.group_by.assign(task.group_by().begin(), task.group_by().end());
}

void fill(const pb::MultiNeedleTask& task, const FilePaths& files, EvaluateCommand& out) {
  out.file = files.of(task.file());
  out.format = format_name(task.format());
  out.chat = task.chat();
  auto& options = out.multi_needle;
  options.lengths = numbers(task.lengths(), options.lengths);
  options.depths_percent = numbers(task.depths_percent(), options.depths_percent);
  if (task.has_n_needles()) options.needles = static_cast<int32_t>(task.n_needles());
  if (task.has_n_queries()) options.queries = static_cast<int32_t>(task.n_queries());
  if (task.has_samples_per_cell())
    options.samples_per_cell = static_cast<int32_t>(task.samples_per_cell());
}

void fill(const pb::MultipleChoiceTask& task, const FilePaths& files, EvaluateCommand& out) {
  out.file = files.of(task.file());
  if (!task.shots_file().empty()) out.shots_file = files.of(task.shots_file());
  out.multiple_choice.shots = static_cast<int32_t>(task.n_shot());
  out.multiple_choice.letters = task.letters();
  out.samples = task.samples();
}

void fill(const pb::IclTask& task, const FilePaths& files, EvaluateCommand& out) {
  out.file = files.of(task.file());
  out.icl.shots = numbers(task.shots(), out.icl.shots);
  if (task.has_n_orders()) out.icl.orders = static_cast<int32_t>(task.n_orders());
  if (task.order() == pb::IclTask::ORDER_BY_CLASS) out.order = "by_class";
  if (task.order() == pb::IclTask::ORDER_BOTH) out.order = "both";
  out.samples = task.samples();
}

void fill(const pb::AnswersTask& task, const FilePaths& files, EvaluateCommand& out) {
  out.file = files.of(task.file());
  if (task.has_max_tokens()) out.answers.max_tokens = static_cast<int32_t>(task.max_tokens());
  out.chat = task.chat();
  out.samples = task.samples();
}

EvaluateCommand command_of(const pb::EvaluationTask& task, const FilePaths& files) {
  EvaluateCommand out;
  switch (task.task_case()) {
    case pb::EvaluationTask::kPerplexity:
      out.task = "perplexity";
      fill(task.perplexity(), files, out);
      break;
    case pb::EvaluationTask::kMultiNeedle:
      out.task = "multi_needle";
      fill(task.multi_needle(), files, out);
      break;
    case pb::EvaluationTask::kMultipleChoice:
      out.task = "multiple_choice";
      fill(task.multiple_choice(), files, out);
      break;
    case pb::EvaluationTask::kIcl:
      out.task = "icl";
      fill(task.icl(), files, out);
      break;
    case pb::EvaluationTask::kAnswers:
      out.task = "answers";
      fill(task.answers(), files, out);
      break;
    case pb::EvaluationTask::TASK_NOT_SET:
      contradiction("has a task that this engine does not know; it is older than the scheduler");
  }
  return out;
}

SubjectSource source_of(const pb::EvaluationSubject& subject, const EvaluatorStart& start) {
  SubjectSource out{.label = subject.label()};
  if (subject.adapter().empty()) return out;
  const auto& adapters = start.adapters();
  const auto at = std::find_if(adapters.begin(), adapters.end(), [&](const auto& adapter) {
    return adapter.id() == subject.adapter();
  });
  if (at == adapters.end() || at->path().empty())
    contradiction("has no adapter " + subject.adapter());
  out.adapter = at->path();
  out.content_sha256 = at->content_sha256();
  return out;
}

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

// The rows that a result has room for, in their order: what is over everything before what is over
// one group, those before groups of two.
std::vector<size_t> kept_rows(const std::vector<evaluate::ResultRow>& rows) {
  std::vector<size_t> out(rows.size());
  std::iota(out.begin(), out.end(), size_t{0});
  std::ranges::stable_sort(out, {}, [&](size_t i) { return rows[i].dims.size(); });
  out.resize(std::min(out.size(), kMostRows));
  std::ranges::sort(out);
  return out;
}

// Heat maps of every subject that has one, in the order of the rows.
std::string heat_maps(const std::vector<evaluate::ResultRow>& rows) {
  std::string out;
  std::set<std::string> seen;
  for (const auto& row : rows) {
    if (!seen.insert(row.subject).second) continue;
    const std::string map = evaluate::heat_map(rows, "accuracy", row.subject);
    if (!map.empty()) out += "\n```\n" + map + "```\n";
  }
  return out;
}

}  // namespace

EvaluationJob evaluation_job(const EvaluatorStart& start) {
  EvaluationJob job;
  const pb::EvaluationSpec& spec = start.spec();
  job.confidence = spec.has_confidence() ? spec.confidence() : 0.95;
  job.seed = static_cast<uint64_t>(spec.seed());
  job.subjects.model = start.model_dir();
  job.subjects.weights_sha256 = start.base_weights_sha256();
  job.subjects.threads = static_cast<int>(start.threads());
  for (const auto& subject : spec.subjects())
    job.subjects.subjects.push_back(source_of(subject, start));
  const FilePaths files(start);
  for (int i = 0; i < spec.tasks_size(); ++i) {
    EvaluateCommand command = command_of(spec.tasks(i), files);
    command.seed = job.seed;
    command.confidence = job.confidence;
    job.task_fields.push_back("tasks[" + std::to_string(i) + "]." + command.task);
    job.tasks.push_back(std::move(command));
  }
  for (const auto& file : start.files())
    job.shown_paths.emplace_back(file.path(), file.filename() + " (" + file.file() + ")");
  for (const auto& adapter : start.adapters())
    job.shown_paths.emplace_back(adapter.path(), adapter.id());
  return job;
}

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
  const std::vector<size_t> kept = kept_rows(evaluation.rows);
  for (const size_t i : kept) *out.add_rows() = row_message(evaluation.rows[i]);
  for (const std::string& note : evaluation.notes) out.add_notes(note);
  if (kept.size() < evaluation.rows.size()) {
    out.add_notes("only " + std::to_string(kept.size()) + " of " +
                  std::to_string(evaluation.rows.size()) +
                  " rows are kept, those over most samples first");
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
    out += (i > 0 ? "\n## " : "## ") + result.task() + ": " + name + "\n\n";
    std::vector<evaluate::ResultRow> rows;
    for (const auto& row : result.rows()) rows.push_back(row_of(row));
    out += evaluate::rows_as_markdown(rows) + heat_maps(rows);
    for (const std::string& note : result.notes()) out += "\nNote: " + note + "\n";
  }
  return out;
}

}  // namespace dex::serve
