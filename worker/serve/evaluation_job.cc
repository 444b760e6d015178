// What an agent asks for, as plain values; the rows that go back are evaluation_messages.cc.
#include <algorithm>
#include <map>
#include <utility>

#include "worker/serve/evaluation_messages.h"

namespace dex::serve {
namespace {

namespace pb = dex::v1;
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
  out.allow_extrapolation = task.allow_extrapolation();
}

void fill(const pb::MultiNeedleTask& task, const FilePaths& files, EvaluateCommand& out) {
  if (!task.file().empty()) {  // else the shipped text
    out.file = files.of(task.file());
    out.format = format_name(task.format());
  }
  out.chat = task.chat();
  auto& options = out.multi_needle;
  options.lengths = numbers(task.lengths(), options.lengths);
  options.depths_percent = numbers(task.depths_percent(), options.depths_percent);
  if (task.has_n_needles()) options.needles = static_cast<int32_t>(task.n_needles());
  options.needle_counts = numbers(task.needle_counts(), {});
  options.query_counts = numbers(task.query_counts(), {});
  if (task.has_n_queries()) {
    options.queries = static_cast<int32_t>(task.n_queries());
    if (options.query_counts.empty()) options.query_counts = {options.queries};
  }
  if (task.has_samples_per_cell())
    options.samples_per_cell = static_cast<int32_t>(task.samples_per_cell());
  out.allow_extrapolation = task.allow_extrapolation();
}

evaluate::MultipleChoice::Score score_of(pb::MultipleChoiceTask::Score score) {
  using Score = evaluate::MultipleChoice::Score;
  switch (score) {
    case pb::MultipleChoiceTask::SCORE_UNSPECIFIED:
      return Score::kAll;
    case pb::MultipleChoiceTask::SCORE_SUM:
      return Score::kSum;
    case pb::MultipleChoiceTask::SCORE_PER_BYTE:
      return Score::kPerByte;
    case pb::MultipleChoiceTask::SCORE_PER_TOKEN:
      return Score::kPerToken;
    default:
      contradiction("has a score that this engine does not know");
  }
}

evaluate::Answers::Match match_of(pb::AnswersTask::Match match) {
  using Match = evaluate::Answers::Match;
  switch (match) {
    case pb::AnswersTask::MATCH_UNSPECIFIED:
      return Match::kAll;
    case pb::AnswersTask::MATCH_EXACT:
      return Match::kExact;
    case pb::AnswersTask::MATCH_CONTAINS:
      return Match::kContains;
    case pb::AnswersTask::MATCH_F1:
      return Match::kF1;
    default:
      contradiction("has a match that this engine does not know");
  }
}

void fill(const pb::MultipleChoiceTask& task, const FilePaths& files, EvaluateCommand& out) {
  out.file = files.of(task.file());
  if (!task.shots_file().empty()) out.shots_file = files.of(task.shots_file());
  out.multiple_choice.shots = static_cast<int32_t>(task.n_shot());
  out.multiple_choice.letters = task.letters();
  out.multiple_choice.score = score_of(task.score());
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
  out.answers.match = match_of(task.match());
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

void fill(const pb::InstructionsTask& task, const FilePaths& files, EvaluateCommand& out) {
  out.file = files.of(task.file());
  if (task.has_max_tokens()) out.instructions.max_tokens = static_cast<int32_t>(task.max_tokens());
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
    case pb::EvaluationTask::kInstructions:
      out.task = "instructions";
      fill(task.instructions(), files, out);
      break;
    case pb::EvaluationTask::TASK_NOT_SET:
      contradiction("has a task that this engine does not know; it is older than the scheduler");
  }
  return out;
}

SubjectSource source_of(const pb::EvaluationSubject& subject, const EvaluatorStart& start) {
  SubjectSource out{.label = subject.label()};
  if (subject.dtype() == pb::EvaluationSubject::DTYPE_INT8) out.quantized = Dtype::kInt8;
  if (subject.dtype() == pb::EvaluationSubject::DTYPE_INT4) out.quantized = Dtype::kInt4;
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

}  // namespace dex::serve
