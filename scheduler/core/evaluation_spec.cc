#include "scheduler/core/evaluation_spec.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <set>
#include <string_view>
#include <utility>

#include "proto/task_files.h"

namespace dex::core {

namespace {

constexpr int kMostTasks = 16;
constexpr size_t kLongestLabel = 64;
constexpr double kFlopsASecond = 5e10;
// Times the model's context: what a model does of it beyond is measured, what no memory holds is
// not.
constexpr int64_t kFarthestExtrapolation = 4;

class EvaluationCheck {
 public:
  explicit EvaluationCheck(int64_t context) : context_(context) {}

  void missing(const std::string& field) { add("MISSING_FIELD", field, "is missing"); }
  void add(std::string reason, const std::string& field, std::string what) {
    problems.push_back({std::move(reason), field, std::move(what)});
  }
  void range(const std::string& field, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return;
    add("VALUE_OUT_OF_RANGE", field,
        "must be between " + std::to_string(low) + " and " + std::to_string(high) + ", got " +
            std::to_string(value));
  }
  void at_least(const std::string& field, int64_t value, int64_t low) {
    if (value >= low) return;
    add("VALUE_OUT_OF_RANGE", field,
        "must be at least " + std::to_string(low) + ", got " + std::to_string(value));
  }
  template <typename Enum>
  void known(const std::string& field, Enum value, bool valid) {
    if (!valid)
      add("INVALID_FIELD", field, "is unknown, got " + std::to_string(static_cast<int>(value)));
  }
  [[nodiscard]] int64_t context() const { return context_; }
  // The most tokens that may be asked for at once.
  [[nodiscard]] int64_t context(bool allow_extrapolation) const {
    return allow_extrapolation ? kFarthestExtrapolation * context_ : context_;
  }

  std::vector<Problem> problems;

 private:
  int64_t context_;
};

void check_task(const v1::PerplexityTask& task, const std::string& at, EvaluationCheck& check) {
  if (task.file().empty()) check.missing(at + "file");
  check.known(at + "format", task.format(), v1::TextFormat_IsValid(task.format()));
  const int64_t width = task.has_context_length() ? int64_t{task.context_length()}
                                                  : std::min<int64_t>(2048, check.context());
  if (task.has_context_length())
    check.range(at + "context_length", width, 2, check.context(task.allow_extrapolation()));
  // Every window has a token before those that it scores (method.md §9.1).
  if (task.has_stride())
    check.range(at + "stride", task.stride(), 1, std::max<int64_t>(1, width - 1));
  if (task.has_max_tokens()) check.at_least(at + "max_tokens", task.max_tokens(), 2);
  for (const std::string& key : task.group_by()) {
    if (key != "tag" && key != "language" && key != "length_bucket")
      check.add("INVALID_FIELD", at + "group_by",
                "may hold tag, language and length_bucket, got '" + key + "'");
  }
}

// Several grids in one run.
void check_grids(const v1::MultiNeedleTask& task, const std::string& at, EvaluationCheck& check) {
  if (task.has_n_needles())
    check.add("CONFLICTING_FIELDS", at + "n_needles", "can't be given together with needle_counts");
  const bool by_count = task.query_counts_size() > 0;
  if (task.has_n_queries() && by_count)
    check.add("CONFLICTING_FIELDS", at + "n_queries", "can't be given together with query_counts");
  if (by_count && task.query_counts_size() != task.needle_counts_size()) {
    check.add("INVALID_FIELD", at + "query_counts",
              "must have one for each of the " + std::to_string(task.needle_counts_size()) +
                  " of needle_counts, got " + std::to_string(task.query_counts_size()));
    return;
  }
  std::set<uint32_t> seen;
  for (int i = 0; i < task.needle_counts_size(); ++i) {
    const int64_t needles = task.needle_counts(i);
    check.range(at + "needle_counts", needles, 1, 64);
    if (!seen.insert(task.needle_counts(i)).second)
      check.add("INVALID_FIELD", at + "needle_counts", "names one twice");
    if (needles < 1) continue;  // nothing can be asked for
    if (by_count) check.range(at + "query_counts", task.query_counts(i), 1, needles);
    if (task.has_n_queries()) check.range(at + "n_queries", task.n_queries(), 1, needles);
  }
}

void check_task(const v1::MultiNeedleTask& task, const std::string& at, EvaluationCheck& check) {
  if (task.file().empty() && task.format() != v1::TEXT_FORMAT_UNSPECIFIED)
    check.add("UNUSED_FIELD", at + "format", "has no effect without a file");
  check.known(at + "format", task.format(), v1::TextFormat_IsValid(task.format()));
  for (const uint32_t length : task.lengths())
    check.range(at + "lengths", length, 1, check.context(task.allow_extrapolation()));
  for (const uint32_t depth : task.depths_percent())
    check.range(at + "depths_percent", depth, 0, 100);
  if (task.needle_counts_size() > 0) {
    check_grids(task, at, check);
  } else {
    const int64_t needles = task.has_n_needles() ? task.n_needles() : 6;
    check.range(at + "n_needles", needles, 1, 64);
    // Two are asked for unless told otherwise, and one needle is then too few.
    check.range(at + "n_queries", task.has_n_queries() ? task.n_queries() : 2, 1, needles);
    if (task.query_counts_size() > 0)
      check.add("UNUSED_FIELD", at + "query_counts", "has no effect without needle_counts");
  }
  if (task.has_samples_per_cell())
    check.range(at + "samples_per_cell", task.samples_per_cell(), 1, 1000);
}

void check_task(const v1::MultipleChoiceTask& task, const std::string& at, EvaluationCheck& check) {
  if (task.file().empty()) check.missing(at + "file");
  if (task.has_n_shot()) check.range(at + "n_shot", task.n_shot(), 0, 1024);
  if (!task.shots_file().empty() && task.n_shot() == 0)
    check.add("UNUSED_FIELD", at + "shots_file", "has no effect without n_shot");
  check.known(at + "score", task.score(), v1::MultipleChoiceTask::Score_IsValid(task.score()));
  if (task.has_samples()) check.at_least(at + "samples", task.samples(), 1);
}

void check_task(const v1::IclTask& task, const std::string& at, EvaluationCheck& check) {
  if (task.file().empty()) check.missing(at + "file");
  for (const uint32_t shots : task.shots()) check.range(at + "shots", shots, 0, 1024);
  if (task.has_n_orders()) check.range(at + "n_orders", task.n_orders(), 1, 100);
  check.known(at + "order", task.order(), v1::IclTask::Order_IsValid(task.order()));
  if (task.has_samples()) check.at_least(at + "samples", task.samples(), 1);
}

void check_task(const v1::AnswersTask& task, const std::string& at, EvaluationCheck& check) {
  if (task.file().empty()) check.missing(at + "file");
  if (task.has_max_tokens()) check.range(at + "max_tokens", task.max_tokens(), 1, check.context());
  check.known(at + "match", task.match(), v1::AnswersTask::Match_IsValid(task.match()));
  if (task.has_samples()) check.at_least(at + "samples", task.samples(), 1);
}

void check_task(const v1::HeadAnalysisTask& task, const std::string& at, EvaluationCheck& check) {
  if (task.file().empty()) check.missing(at + "file");
  check.known(at + "format", task.format(), v1::TextFormat_IsValid(task.format()));
  std::set<int> seen;
  for (const int metric : task.metrics()) {
    check.known(at + "metrics", metric,
                metric != 0 && v1::HeadAnalysisTask::Metric_IsValid(metric));
    if (!seen.insert(metric).second) check.add("INVALID_FIELD", at + "metrics", "names one twice");
  }
  if (task.has_n_sequences()) check.range(at + "n_sequences", task.n_sequences(), 1, 1024);
  const int64_t length = task.has_seq_length() ? task.seq_length() : 512;
  check.range(at + "seq_length", length, 16, check.context());
}

void check_task(const v1::InstructionsTask& task, const std::string& at, EvaluationCheck& check) {
  if (task.file().empty()) check.missing(at + "file");
  if (task.has_max_tokens()) check.range(at + "max_tokens", task.max_tokens(), 1, check.context());
}

void check_task(const v1::EvaluationTask& task, const std::string& at, EvaluationCheck& check) {
  const std::string below = at + "." + task_name(task) + ".";
  switch (task.task_case()) {
    case v1::EvaluationTask::kPerplexity:
      return check_task(task.perplexity(), below, check);
    case v1::EvaluationTask::kMultiNeedle:
      return check_task(task.multi_needle(), below, check);
    case v1::EvaluationTask::kMultipleChoice:
      return check_task(task.multiple_choice(), below, check);
    case v1::EvaluationTask::kIcl:
      return check_task(task.icl(), below, check);
    case v1::EvaluationTask::kAnswers:
      return check_task(task.answers(), below, check);
    case v1::EvaluationTask::kHeadAnalysis:
      return check_task(task.head_analysis(), below, check);
    case v1::EvaluationTask::kInstructions:
      return check_task(task.instructions(), below, check);
    case v1::EvaluationTask::TASK_NOT_SET:
      return check.add("MISSING_FIELD", at,
                       "must be one of perplexity, multi_needle, multiple_choice, icl, answers, "
                       "head_analysis, instructions");
  }
}

// Whether the adapter has a branch is for those who know it (server/evaluations.cc).
void check_lambda_scale(const v1::EvaluationSubject& subject, const std::string& field,
                        EvaluationCheck& check) {
  if (!subject.has_dex_lambda_scale()) return;
  if (subject.adapter().empty())
    check.add("UNUSED_FIELD", field, "has no effect: the base has no branch whose λ it scales");
  const double scale = subject.dex_lambda_scale();
  if (!(scale >= 0 && scale <= 1))  // NaN fails too
    check.add("VALUE_OUT_OF_RANGE", field, "must be between 0 and 1, got " + std::to_string(scale));
}

// What a default label ends in; empty: as stored.
std::string_view quantized_ending(const v1::EvaluationSubject& subject) {
  if (subject.dtype() == v1::EvaluationSubject::DTYPE_INT8) return "-int8";
  return subject.dtype() == v1::EvaluationSubject::DTYPE_INT4 ? "-int4" : "";
}

bool is_quantized(const v1::EvaluationSubject& subject) {
  return !quantized_ending(subject).empty();
}

// Eight and four bits are the engine's, and heads are measured without it.
void check_quantized(const v1::EvaluationSpec& spec, EvaluationCheck& check) {
  const auto& subjects = spec.subjects();
  if (std::none_of(subjects.begin(), subjects.end(), is_quantized)) return;
  for (int i = 0; i < spec.tasks_size(); ++i) {
    if (!spec.tasks(i).has_head_analysis()) continue;
    check.add("CONFLICTING_FIELDS", "tasks[" + std::to_string(i) + "].head_analysis",
              "measures heads in fp32, whatever dtype its subjects have: leave it out, or measure "
              "the subjects as stored");
  }
}

void check_subjects(const v1::EvaluationSpec& spec, EvaluationCheck& check) {
  if (spec.subjects_size() < 1 || spec.subjects_size() > kMostSubjects) {
    check.add(spec.subjects_size() == 0 ? "MISSING_FIELD" : "VALUE_OUT_OF_RANGE", "subjects",
              "must have 1 to 4, got " + std::to_string(spec.subjects_size()));
  }
  std::set<std::string> labels;
  for (int i = 0; i < spec.subjects_size(); ++i) {
    const std::string& label = spec.subjects(i).label();
    const std::string field = "subjects[" + std::to_string(i) + "].label";
    const bool plain = std::all_of(label.begin(), label.end(), [](unsigned char c) {
      return c < 0x80 && (std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-');
    });
    if (label.size() > kLongestLabel || !plain)
      check.add("INVALID_FIELD", field, "must have 1 to 64 of A-Z a-z 0-9 . _ -");
    if (!label.empty() && !labels.insert(label).second)
      check.add("INVALID_FIELD", field, "'" + label + "' is another subject's too");
    check_lambda_scale(spec.subjects(i), "subjects[" + std::to_string(i) + "].dex_lambda_scale",
                       check);
    const auto dtype = spec.subjects(i).dtype();
    check.known("subjects[" + std::to_string(i) + "].dtype", dtype,
                v1::EvaluationSubject::Dtype_IsValid(dtype));
  }
  check_quantized(spec, check);
}

void check_metadata(const v1::EvaluationSpec& spec, EvaluationCheck& check) {
  bool fits = spec.metadata_size() <= 16;
  for (const auto& [key, value] : spec.metadata())
    fits = fits && !key.empty() && key.size() <= 64 && value.size() <= 512;
  if (!fits)
    check.add("VALUE_OUT_OF_RANGE", "metadata",
              "may have 16 pairs, keys of 1 to 64 and values of up to 512 bytes");
}

std::string with_ending(const std::string& label, std::string_view ending) {
  return label.substr(0, kLongestLabel - ending.size()) + std::string(ending);
}

std::string subject_name(const v1::EvaluationSubject& subject) {
  if (subject.adapter().empty()) return "base";
  // ft:<base>:<tenant>:<suffix>:<ulid>
  const size_t end = subject.adapter().rfind(':');
  const size_t begin = end == std::string::npos || end == 0 ? std::string::npos
                                                            : subject.adapter().rfind(':', end - 1);
  const std::string suffix = begin == std::string::npos
                                 ? std::string()
                                 : subject.adapter().substr(begin + 1, end - begin - 1);
  const std::string name = suffix.empty() ? "adapter" : suffix;
  if (!subject.has_dex_lambda_scale()) return name;
  char scale[32];
  std::snprintf(scale, sizeof scale, "-lambda-%.4g", subject.dex_lambda_scale());
  return with_ending(name, scale);
}

std::string default_label(const v1::EvaluationSubject& subject) {
  const std::string name = subject_name(subject);
  return is_quantized(subject) ? with_ending(name, quantized_ending(subject)) : name;
}

v1::TextFormat format_for(v1::TextFormat asked, const std::string& name) {
  if (asked != v1::TEXT_FORMAT_UNSPECIFIED) return asked;
  return name.ends_with(".jsonl") || name.ends_with(".json") ? v1::TEXT_FORMAT_JSONL
                                                             : v1::TEXT_FORMAT_RAW;
}

// A task of several grids is as much as that many tasks.
int grids_of(const v1::EvaluationTask& task) {
  return std::max(1, task.multi_needle().needle_counts_size());
}

// Tokens that a task puts through the model for one subject, about: four bytes a token, each in
// two windows or prompts.
double tokens_of(const v1::EvaluationTask& task, double bytes, int64_t context) {
  const double once = bytes / 4;
  switch (task.task_case()) {
    case v1::EvaluationTask::kPerplexity: {
      const auto& options = task.perplexity();
      return 2 * std::min<double>(once, options.has_max_tokens()
                                            ? static_cast<double>(options.max_tokens())
                                            : 200'000);
    }
    case v1::EvaluationTask::kMultiNeedle: {
      const auto& options = task.multi_needle();
      double lengths = 2.0 * static_cast<double>(context);  // powers of two up to it
      if (options.lengths_size() > 0) {
        lengths = 0;
        for (const uint32_t length : options.lengths()) lengths += length;
      }
      const int depths = options.depths_percent_size() > 0 ? options.depths_percent_size() : 5;
      return lengths * depths * (options.has_samples_per_cell() ? options.samples_per_cell() : 20) *
             grids_of(task);
    }
    case v1::EvaluationTask::kHeadAnalysis: {
      const auto& options = task.head_analysis();
      const auto& metrics = options.metrics();
      const bool hessian = std::find(metrics.begin(), metrics.end(),
                                     v1::HeadAnalysisTask::METRIC_HESSIAN) != metrics.end();
      // Forward, forward and backward, and maps; about forty gradients for an eigenvalue.
      const double passes = hessian ? 130 : 6;
      return passes * (options.has_n_sequences() ? options.n_sequences() : 8) *
             (options.has_seq_length() ? options.seq_length() : 512);
    }
    case v1::EvaluationTask::kInstructions: {
      const auto& options = task.instructions();
      constexpr double kBytesAnInstruction = 200;
      return once +
             bytes / kBytesAnInstruction * (options.has_max_tokens() ? options.max_tokens() : 512);
    }
    default:
      return 2 * once;
  }
}

}  // namespace

std::string task_name(const v1::EvaluationTask& task) {
  const auto* oneof = v1::EvaluationTask::descriptor()->FindOneofByName("task");
  const auto* field = task.GetReflection()->GetOneofFieldDescriptor(task, oneof);
  return field == nullptr ? "" : field->name();
}

std::vector<NamedFile> evaluation_files(const v1::EvaluationSpec& spec) {
  std::vector<NamedFile> files;
  for (int i = 0; i < spec.tasks_size(); ++i) {
    const std::string at = "tasks[" + std::to_string(i) + "]." + task_name(spec.tasks(i)) + ".";
    for (auto& [field, file] : proto::task_files(spec.tasks(i))) {
      if (!file.empty()) files.push_back({at + field, std::move(file)});
    }
  }
  return files;
}

std::vector<Problem> check_evaluation(const v1::EvaluationSpec& spec, const v1::Model& model) {
  EvaluationCheck check(model.context_length());
  check_subjects(spec, check);
  int tasks = 0;
  for (const auto& task : spec.tasks()) tasks += grids_of(task);
  if (tasks < 1 || tasks > kMostTasks) {
    check.add(tasks == 0 ? "MISSING_FIELD" : "VALUE_OUT_OF_RANGE", "tasks",
              std::string("must have 1 to 16") +
                  (tasks > spec.tasks_size() ? ", each of needle_counts as one" : "") + ", got " +
                  std::to_string(tasks));
  }
  for (int i = 0; i < spec.tasks_size() && i < kMostTasks; ++i)
    check_task(spec.tasks(i), "tasks[" + std::to_string(i) + "]", check);
  if (spec.has_seed()) check.at_least("seed", spec.seed(), 0);
  // Written so that NaN fails too.
  if (spec.has_confidence() && !(spec.confidence() >= 0.5 && spec.confidence() <= 0.999)) {
    check.add("VALUE_OUT_OF_RANGE", "confidence",
              "must be between 0.5 and 0.999, got " + std::to_string(spec.confidence()));
  }
  check_metadata(spec, check);
  return std::move(check.problems);
}

std::vector<Problem> check_evaluation_task(const v1::EvaluationTask& task, const std::string& at,
                                           const v1::Model& model) {
  EvaluationCheck check(model.context_length());
  check_task(task, at, check);
  return std::move(check.problems);
}

void fill_evaluation(v1::EvaluationSpec& spec, const std::map<std::string, std::string>& names) {
  if (!spec.has_seed()) spec.set_seed(0);
  if (!spec.has_confidence()) spec.set_confidence(0.95);
  std::set<std::string> taken;
  for (const auto& subject : spec.subjects()) taken.insert(subject.label());
  for (auto& subject : *spec.mutable_subjects()) {
    if (!subject.label().empty()) continue;
    const std::string plain = default_label(subject);
    std::string label = plain;
    for (int i = 2; !taken.insert(label).second; ++i) label = plain + "-" + std::to_string(i);
    subject.set_label(label);
  }
  const auto name_of = [&](const std::string& file) {
    const auto at = names.find(file);
    return at == names.end() ? std::string() : at->second;
  };
  for (auto& task : *spec.mutable_tasks()) {
    if (task.has_perplexity()) {
      auto& options = *task.mutable_perplexity();
      options.set_format(format_for(options.format(), name_of(options.file())));
    } else if (task.has_multi_needle()) {
      auto& options = *task.mutable_multi_needle();
      if (options.file().empty()) continue;
      options.set_format(format_for(options.format(), name_of(options.file())));
    } else if (task.has_head_analysis()) {
      auto& options = *task.mutable_head_analysis();
      options.set_format(format_for(options.format(), name_of(options.file())));
    }
  }
}

double evaluation_flops(const v1::EvaluationSpec& spec, const v1::Model& model,
                        const std::map<std::string, int64_t>& bytes) {
  double tokens = 0;
  for (const auto& task : spec.tasks()) {
    v1::EvaluationSpec one;
    *one.add_tasks() = task;
    double size = 0;
    for (const NamedFile& file : evaluation_files(one)) {
      const auto at = bytes.find(file.id);
      if (at != bytes.end()) size += static_cast<double>(at->second);
    }
    tokens += tokens_of(task, size, model.context_length());
  }
  return 2.0 * static_cast<double>(model.parameters()) * tokens * spec.subjects_size();
}

double evaluation_seconds(const v1::EvaluationSpec& spec, const v1::Model& model,
                          const std::map<std::string, int64_t>& bytes) {
  return std::max(1.0, evaluation_flops(spec, model, bytes) / kFlopsASecond);
}

}  // namespace dex::core
