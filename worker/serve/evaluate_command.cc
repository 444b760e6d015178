#include "worker/serve/evaluate_command.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <utility>

#include "worker/evaluate/heat_map.h"
#include "worker/evaluate/report_text.h"
#include "worker/evaluate/shipped_text.h"
#include "worker/serve/evaluation_subjects.h"

namespace dex::serve {
namespace {

using evaluate::Task;

constexpr int kInterrupted = 130;
constexpr int64_t kProgressEvery_ms = 2000;

evaluate::TextFormat format_of(const std::string& name) {
  if (name == "raw") return evaluate::TextFormat::kRaw;
  if (name == "jsonl") return evaluate::TextFormat::kJsonl;
  return evaluate::TextFormat::kAuto;
}

evaluate::InContext::Order order_of(const std::string& name) {
  using Order = evaluate::InContext::Order;
  if (name == "by_class") return Order::kByClass;
  return name == "both" ? Order::kBoth : Order::kRandom;
}

// What a file name and a table can hold, and no two alike.
std::string label_for(const std::string& adapter, const std::vector<std::string>& taken) {
  std::string label = "base";
  if (adapter != "none") {
    const std::filesystem::path folder = std::filesystem::path(adapter).lexically_normal();
    label = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
    for (char& c : label) {
      const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                         (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
      if (!plain) c = '_';
    }
  }
  std::string out = label;
  for (int i = 2; std::ranges::find(taken, out) != taken.end(); ++i)
    out = label + "-" + std::to_string(i);
  return out;
}

// The base, then its adapters; `suffix` ends every label.
EvaluationSubjects::Options subjects_of(const EvaluateCommand& command,
                                        const std::string& suffix = "") {
  EvaluationSubjects::Options options{.model = command.model,
                                      .dtype = command.dtype,
                                      .threads = command.threads,
                                      .positions = positions_for(command)};
  std::vector<std::string> labels = {"base"};
  options.subjects.push_back({labels.back() + suffix, {}, {}});
  for (const std::string& folder : command.adapters) {
    labels.push_back(label_for(folder, labels));
    options.subjects.push_back({labels.back() + suffix, folder == "none" ? "" : folder, {}});
  }
  return options;
}

// A line of progress every few seconds, and one at each subject's end.
class Progress {
 public:
  Progress(std::string task, const base::Clock& clock, std::ostream& log)
      : task_(std::move(task)), clock_(clock), log_(log) {}
  void operator()(const std::string& subject, int64_t done, int64_t total) {
    const int64_t now = clock_.steady_ms();
    if (done < total && now - last_ms_ < kProgressEvery_ms) return;
    last_ms_ = now;
    log_ << task_ << ": " << subject << " " << done << "/" << total << std::endl;
  }

 private:
  std::string task_;
  const base::Clock& clock_;
  std::ostream& log_;
  int64_t last_ms_ = 0;
};

EvaluateCommand in_eight_bits(EvaluateCommand command) {
  if (command.task == "instructions")
    throw std::runtime_error("--against-int8: instructions writes answers and measures nothing");
  if (command.task == "head_analysis")
    throw std::runtime_error("--against-int8: heads are measured in fp32, whatever serves");
  if (command.dtype == "int8")
    throw std::runtime_error("--against-int8: --dtype int8 would compare int8 with itself");
  command.dtype = "int8";
  return command;
}

// What is evaluated together: all subjects, or each beside its twin.
std::vector<std::vector<evaluate::Subject*>> groups_of(
    const EvaluationSubjects& subjects, const std::optional<EvaluationSubjects>& twins) {
  if (!twins) return {subjects.list()};
  std::vector<std::vector<evaluate::Subject*>> groups;
  for (size_t i = 0; i < subjects.list().size(); ++i)
    groups.push_back({subjects.list()[i], twins->list()[i]});
  return groups;
}

// Two rows a subject (method.md §8.5). The pair is not compared: a largest value has no interval.
void add_extremes(const EvaluateCommand& command, const std::vector<evaluate::Subject*>& pair,
                  const std::vector<ActivationExtremes>& extremes,
                  evaluate::Evaluation& evaluation) {
  const auto add = [&](const char* metric, double ActivationExtremes::*value) {
    for (size_t i = 0; i < pair.size(); ++i) {
      evaluate::ResultRow& row = evaluation.rows.emplace_back();
      row.task = command.task;
      row.subject = pair[i]->label();
      row.metric = metric;
      row.value = extremes[i].*value;
      row.confidence = command.confidence;
      row.n = extremes[i].tokens;
    }
  };
  add("largest_hidden", &ActivationExtremes::hidden);
  add("largest_attention_logit", &ActivationExtremes::attention_logit);
  evaluation.notes.emplace_back(
      "largest_hidden is of the residual stream behind every layer, largest_attention_logit of "
      "q·k/√d before the softmax, over the n tokens that were computed");
}

std::ofstream open_samples(const std::filesystem::path& path) {
  std::ofstream file;
  if (path.empty()) return file;
  file.open(path, std::ios::trunc);
  if (!file) throw std::runtime_error("--samples-out: " + path.string() + " can't be written");
  return file;
}

void show(const EvaluateCommand& command, const evaluate::Evaluation& evaluation,
          const std::vector<evaluate::Subject*>& subjects, std::ostream& out) {
  if (command.json) {
    out << evaluate::evaluation_as_json(command.task, evaluation, command.seed);
    return;
  }
  out << evaluate::rows_as_table(evaluation.rows);
  for (const evaluate::Subject* subject : subjects) {
    for (const auto& map : evaluate::heat_maps_of(evaluation.rows, "accuracy", subject->label()))
      out << "\n" << map;
  }
  for (const std::string& note : evaluation.notes) out << "note: " << note << "\n";
}

}  // namespace

int64_t positions_for(const EvaluateCommand& command) {
  if (!command.allow_extrapolation) return 0;
  int64_t most = command.perplexity.context_length;
  for (const int32_t length : command.multi_needle.lengths) most = std::max<int64_t>(most, length);
  return most;
}

std::unique_ptr<Task> make_task(const EvaluateCommand& command) {
  if (command.task == "perplexity") {
    auto options = command.perplexity;
    options.allow_extrapolation = command.allow_extrapolation;
    return std::make_unique<evaluate::Perplexity>(
        options, evaluate::read_texts(command.file, format_of(command.format)));
  }
  if (command.task == "multi_needle") {
    auto options = command.multi_needle;
    options.seed = command.seed;
    options.chat = command.chat;
    options.allow_extrapolation = command.allow_extrapolation;
    if (command.file.empty() && command.format != "auto")
      throw std::runtime_error("--format has no effect without --file: the shipped text has one");
    return std::make_unique<evaluate::MultiNeedle>(
        options, command.file.empty()
                     ? evaluate::shipped_text()
                     : evaluate::read_texts(command.file, format_of(command.format)));
  }
  if (command.task == "multiple_choice") {
    auto options = command.multiple_choice;
    options.seed = command.seed;
    options.samples = command.samples;
    std::vector<evaluate::ChoiceQuestion> examples;
    if (!command.shots_file.empty()) examples = evaluate::read_choices(command.shots_file);
    return std::make_unique<evaluate::MultipleChoice>(options, evaluate::read_choices(command.file),
                                                      std::move(examples));
  }
  if (command.task == "icl") {
    auto options = command.icl;
    options.seed = command.seed;
    options.order = order_of(command.order);
    if (command.samples > 0) options.samples = command.samples;
    return std::make_unique<evaluate::InContext>(options, evaluate::read_labelled(command.file));
  }
  if (command.task == "answers") {
    auto options = command.answers;
    options.seed = command.seed;
    options.samples = command.samples;
    options.chat = command.chat;
    return std::make_unique<evaluate::Answers>(options, evaluate::read_answers(command.file));
  }
  if (command.task == "head_analysis") {
    auto options = command.head_analysis;
    options.seed = command.seed;
    if (!command.head_metrics.empty()) {
      options.question = {.skip_rows = options.question.skip_rows};
      for (const std::string& metric : command.head_metrics)
        evaluate::ask_for(metric, options.question);
    }
    return std::make_unique<evaluate::HeadAnalysis>(
        options, evaluate::read_texts(command.file, format_of(command.format)));
  }
  auto options = command.instructions;
  options.seed = command.seed;
  return std::make_unique<evaluate::Instructions>(options,
                                                  evaluate::read_instructions(command.file));
}

int run_evaluation(const EvaluateCommand& command, const base::StopSignals& signals,
                   const base::Clock& clock, std::ostream& out, std::ostream& log) {
  const std::stop_callback at_once(signals.urgent(), [] { std::_Exit(kInterrupted); });
  if (command.task == "head_analysis" && !command.dtype.empty())
    throw std::runtime_error("--dtype has no effect: heads are measured in fp32, whatever serves");
  std::optional<EvaluateCommand> eight_bits;
  if (command.against_int8) eight_bits = in_eight_bits(command);
  // The file first: reading it takes a moment, loading a model may take a minute.
  const std::unique_ptr<Task> task = make_task(command);
  std::ofstream samples = open_samples(command.samples_out);
  EvaluationSubjects subjects(subjects_of(command), clock);
  evaluate::Hooks hooks;
  hooks.stop = signals.token();
  hooks.progress = Progress(command.task, clock, log);
  if (samples.is_open()) {
    hooks.sample = [&](const evaluate::Sample& sample) {
      samples << evaluate::sample_as_json(sample) << std::flush;
    };
  }
  std::optional<EvaluationSubjects> twins;
  if (eight_bits) {
    twins.emplace(subjects_of(*eight_bits, "-int8"), clock);
    subjects.keep_extremes();
    twins->keep_extremes();
  }
  bool complete = true;
  const auto groups = groups_of(subjects, twins);
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto& group = groups[i];
    evaluate::Evaluation evaluation =
        evaluate::evaluate(*task, group, {command.confidence, command.seed}, hooks);
    if (twins)
      add_extremes(command, group, {*subjects.extremes(i), *twins->extremes(i)}, evaluation);
    show(command, evaluation, group, out);
    complete = evaluation.complete;
    if (!complete) break;
  }
  if (samples.is_open() && !samples)
    throw std::runtime_error("--samples-out: " + command.samples_out.string() +
                             " could not be written to its end; is the disk full?");
  if (!complete) {
    log << "stopped: the rows are over what was measured until then" << std::endl;
    return kInterrupted;
  }
  if (const auto* export_of = dynamic_cast<const evaluate::Instructions*>(task.get())) {
    for (const auto& path : export_of->write(command.out)) log << "wrote " << path.string() << "\n";
  }
  return 0;
}

}  // namespace dex::serve
