#include "worker/serve/evaluation_messages.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
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

std::string metric_name(int metric) {
  switch (metric) {
    case pb::HeadAnalysisTask::METRIC_ENTROPY:
      return "entropy";
    case pb::HeadAnalysisTask::METRIC_IMPORTANCE:
      return "importance";
    case pb::HeadAnalysisTask::METRIC_COSINE_DISTANCE:
      return "cosine_distance";
    case pb::HeadAnalysisTask::METRIC_CKA:
      return "cka";
    case pb::HeadAnalysisTask::METRIC_SPARSITY:
      return "sparsity";
    case pb::HeadAnalysisTask::METRIC_HESSIAN:
      return "hessian";
    default:
      contradiction("has a metric of heads that this engine does not know");
  }
}

void fill(const pb::HeadAnalysisTask& task, const FilePaths& files, EvaluateCommand& out) {
  out.file = files.of(task.file());
  out.format = format_name(task.format());
  auto& options = out.head_analysis;
  for (const int metric : task.metrics()) out.head_metrics.push_back(metric_name(metric));
  if (task.has_n_sequences()) options.sequences = static_cast<int32_t>(task.n_sequences());
  if (task.has_seq_length()) options.length = static_cast<int32_t>(task.seq_length());
  if (task.has_skip_rows()) options.question.skip_rows = static_cast<int32_t>(task.skip_rows());
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
    case pb::EvaluationTask::kHeadAnalysis:
      out.task = "head_analysis";
      fill(task.head_analysis(), files, out);
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
  if (subject.has_dex_lambda_scale()) out.dex_lambda_scale = subject.dex_lambda_scale();
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
std::vector<const evaluate::ResultRow*> kept_rows(std::vector<const evaluate::ResultRow*> rows) {
  std::ranges::stable_sort(rows, {}, [](const auto* row) { return row->dims.size(); });
  rows.resize(std::min(rows.size(), kMostRows));
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
  const std::vector<const evaluate::ResultRow*> rows = plain_rows(evaluation.rows);
  const std::vector<const evaluate::ResultRow*> kept = kept_rows(rows);
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
    out += (i > 0 ? "\n## " : "## ") + result.task() + ": " + name + "\n\n";
    std::vector<evaluate::ResultRow> rows;
    for (const auto& row : result.rows()) rows.push_back(row_of(row));
    out += evaluate::rows_as_markdown(rows) + heat_maps(rows);
    for (const std::string& subject : pictured_subjects(result))
      out += "\n![Heads of " + subject + "](" + picture_name(i, subject) + ")\n";
    for (const std::string& note : result.notes()) out += "\nNote: " + note + "\n";
  }
  return out;
}

}  // namespace dex::serve
