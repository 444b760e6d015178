// `dexctl study`: the same data, budget and seeds for every method, and a report of what came out.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/file_argument.h"
#include "client/cli/progress_view.h"
#include "client/cli/promote_if.h"
#include "client/cli/study_learning.h"
#include "client/cli/study_plan.h"
#include "client/cli/study_report.h"
#include "client/cli/study_tasks.h"
#include "client/cli/task_files.h"
#include "services/base/files.h"

namespace dex::cli {

namespace {

namespace fs = std::filesystem;
using base::Result;
using base::Status;
using nlohmann::json;

constexpr int64_t kLargestState = 1 << 20;
constexpr uint32_t kDecodedTokens = 48;
constexpr const char* kPrompt = "The following is a list of things that are known about the sea:";

struct StudyArguments {
  SpecFlags spec;
  std::string methods = "dex,kvo_only,lora,full,adapter", seeds = "1,2,3";
  std::string preset = "auto";
  std::string out = "study";
  std::vector<std::string> tasks;
  int speed_pairs = 3;
  bool plan_only = false;
};

// The jobs and evaluations of a study, kept in its folder: the same command goes on where it was
// broken off, also after the server has forgotten the request ids.
class JobBook {
 public:
  static Result<JobBook> open(const fs::path& file) {
    JobBook book(file);
    if (!fs::exists(file)) return book;
    DEX_ASSIGN_OR_RETURN(const std::string text, base::read_file(file, kLargestState));
    const auto parsed = json::parse(text, nullptr, false);
    if (!parsed.is_object()) {
      return base::failed_precondition(
          "INVALID_FIELD", file.string() + " is not a study's list of jobs; choose another --out");
    }
    for (const auto& [request, job] : parsed.items()) book.jobs_[request] = job;
    return book;
  }
  [[nodiscard]] std::string find(const std::string& request_id) const {
    const auto found = jobs_.find(request_id);
    return found == jobs_.end() ? "" : found->second;
  }
  Status put(const std::string& request_id, const std::string& job) {
    jobs_[request_id] = job;
    return base::write_file_atomically(file_, json(jobs_).dump(1) + "\n", 0644);
  }

 private:
  explicit JobBook(fs::path file) : file_(std::move(file)) {}
  fs::path file_;
  std::map<std::string, std::string> jobs_;
};

// A job that has ended, and its training loss.
struct EndedJob {
  v1::FineTuningJob job;
  LossCurve curve;
};

// What the book finds behind a request, which may have ended long ago, or what is made of it now.
// One that was cancelled, or failed by no fault of the user's, before this command gets a
// successor, which the book finds behind it from then on; so does one that was deleted, whose
// request the server still knows.
template <typename Request, typename Create, typename Get>
Result<std::string> taken_up(Request& request, JobBook& book, const Create& create,
                             const Get& get) {
  request.set_request_id(request_id_of(request.spec()));
  while (true) {
    const std::string known = book.find(request.request_id());
    const auto answer = known.empty() ? create(request) : get(known);
    if (!known.empty() && answer.status().code() == base::Code::kNotFound) {
      request.set_request_id(request_id_after(request.request_id(), known));
      continue;
    }
    DEX_ASSIGN_OR_RETURN(const auto found, answer);
    if (known.empty()) DEX_RETURN_IF_ERROR(book.put(request.request_id(), found.id()));
    if (!is_tried_again(found)) return found.id();
    request.set_request_id(request_id_after(request.request_id(), found.id()));
  }
}

Result<std::string> job_of_run(Context& context, const StudyPlan& plan, const StudyRun& run,
                               JobBook& book) {
  v1::CreateFineTuningJobRequest request;
  DEX_ASSIGN_OR_RETURN(*request.mutable_spec(), spec_of(plan, run));
  return taken_up(
      request, book, [&](const auto& made) { return context.client.create_job(made); },
      [&](const std::string& id) { return context.client.get_job(id); });
}

// Waits for the end of the run's job. Its events are read from the first on, also those of a job
// that has ended long ago.
Result<EndedJob> run_job(Context& context, const StudyPlan& plan, const StudyRun& run,
                         JobBook& book) {
  DEX_ASSIGN_OR_RETURN(const std::string id, job_of_run(context, plan, run, book));
  EndedJob ended;
  JobProgress progress(context.output);
  const bool show = context.output.terminal().interactive;
  const Status watched =
      context.client.watch_job(id, 0, [&](const v1::WatchFineTuningJobResponse& message) {
        if (show && message.has_snapshot()) progress.show(message.snapshot());
        if (show && message.has_event() && message.event().has_metrics())
          progress.show(message.event());
        if (message.has_event()) ended.curve.take(message.event());
        return true;
      });
  progress.clear();
  DEX_RETURN_IF_ERROR(watched);
  DEX_ASSIGN_OR_RETURN(ended.job, context.client.get_job(id));
  return ended;
}

// The evaluation of a run's result by the plan's tasks.
Result<std::string> evaluation_of_run(Context& context, const StudyPlan& plan,
                                      const std::string& adapter, JobBook& book) {
  v1::CreateEvaluationRequest request;
  *request.mutable_spec() = evaluation_of(plan, adapter);
  return taken_up(
      request, book, [&](const auto& made) { return context.client.create_evaluation(made); },
      [&](const std::string& id) { return context.client.get_evaluation(id); });
}

// Waits for its end.
Result<v1::Evaluation> ended_evaluation(Context& context, const StudyPlan& plan,
                                        const std::string& adapter, JobBook& book) {
  DEX_ASSIGN_OR_RETURN(const std::string id, evaluation_of_run(context, plan, adapter, book));
  DEX_RETURN_IF_ERROR(context.client.watch_evaluation(
      id, 0, [](const v1::WatchEvaluationResponse&) { return true; }));
  return context.client.get_evaluation(id);
}

// What can't be measured is told in the report and ends nothing but what is stopped.
Status measure_tasks(Context& context, const StudyPlan& plan, JobBook& book, RunResult& result) {
  if (plan.tasks.empty()) return {};
  const auto evaluation = ended_evaluation(context, plan, result.adapter, book);
  if (evaluation.status().code() == base::Code::kCancelled) return evaluation.status();
  if (!evaluation.ok()) {
    result.not_measured = "tasks not measured: " + evaluation.status().message() +
                          " (the same command tries it again)";
    return {};
  }
  result.evaluation = evaluation->id();
  result.tasks = task_figures(*evaluation);
  if (const std::string failure = failure_of(*evaluation); !failure.empty())
    result.not_measured = "tasks not measured: " + failure;
  return {};
}

// Milliseconds a token of greedy decoding, the first one not counted.
Result<double> decode_ms(Context& context, const std::string& model,
                         std::optional<double> lambda_scale = {}) {
  v1::GenerateRequest request;
  request.set_model(model);
  request.set_prompt(kPrompt);
  request.set_max_tokens(kDecodedTokens);
  request.set_temperature(0);
  request.set_ignore_eos(true);
  if (lambda_scale) request.set_dex_lambda_scale(*lambda_scale);
  DEX_ASSIGN_OR_RETURN(const auto reply, context.client.generate(request));
  const double tokens = reply.usage().completion_tokens() - 1;
  return (reply.timing().total_ms() - reply.timing().first_token_ms()) / tokens;
}

// Base and adapter in turn, the adapter as it is served and, where that is merged, with its branch
// taken out; the first round warms up and is not counted.
Status measure_decoding(Context& context, const std::string& base_model, int rounds,
                        RunResult& result) {
  const Decoding& how = result.decoding;
  for (int round = 0; round <= rounds; ++round) {
    DEX_ASSIGN_OR_RETURN(const double of_base, decode_ms(context, base_model));
    DEX_ASSIGN_OR_RETURN(const double served, decode_ms(context, result.adapter));
    double scaled = 0;
    if (how.scaled) {
      DEX_ASSIGN_OR_RETURN(scaled, decode_ms(context, result.adapter, kBranchScale));
    }
    if (round == 0) continue;
    (how.merged ? result.merged : result.unmerged).push_back(served / of_base);
    if (how.scaled) result.unmerged.push_back(scaled / of_base);
  }
  return {};
}

// The peak rates of a job, as its effective spec has them.
std::string rates_text(const v1::Hyperparameters& rates) {
  std::string text;
  const auto add = [&text](const char* name, double rate) {
    char number[32];
    std::snprintf(number, sizeof number, " %g", rate);
    text += (text.empty() ? "" : ", ") + std::string(name) + number;
  };
  if (rates.has_learning_rate()) add("learning_rate", rates.learning_rate());
  if (rates.has_branch_learning_rate()) add("branch_learning_rate", rates.branch_learning_rate());
  if (rates.has_lambda_learning_rate()) add("lambda_learning_rate", rates.lambda_learning_rate());
  return text;
}

RunResult result_of(const StudyRun& run, const EndedJob& ended) {
  const v1::FineTuningJob& job = ended.job;
  RunResult result;
  result.run = run;
  result.job = job.id();
  result.adapter = job.fine_tuned_model();
  result.failure = failure_of(job);
  result.rates = rates_text(job.effective_config().spec().hyperparameters());
  result.decoding = decoding_of(job.effective_config().spec());
  const auto& metrics = job.metrics();
  result.base_loss = metrics.base_valid_loss();
  result.loss = metrics.valid_loss();
  result.branch = job.branch_effect();
  if (metrics.has_gradient_range()) result.gradient_range = metrics.gradient_range();
  result.train_losses = ended.curve.losses();
  result.trained_tokens = job.trained_tokens();
  result.trained_parameters = metrics.trained_parameters();
  result.added_parameters = metrics.added_parameters();
  result.peak_memory_bytes = metrics.peak_host_memory_bytes();
  result.tokens_per_second = metrics.tokens_per_second();
  return result;
}

std::string line_of(const RunResult& result) {
  if (!result.failure.empty()) return result.run.name() + ": failed, " + result.failure;
  char text[160];
  std::snprintf(text, sizeof text, ": held-out loss %.4f (base %.4f), %.0f tok/s", result.loss,
                result.base_loss, result.tokens_per_second);
  return result.run.name() + text + (result.not_measured.empty() ? "" : "; " + result.not_measured);
}

class Study {
 public:
  Study(Context& context, const StudyArguments& arguments, StudyPlan plan, std::string data)
      : context_(context), arguments_(arguments), plan_(std::move(plan)), data_(std::move(data)) {}

  Status run() {
    DEX_RETURN_IF_ERROR(base::make_directories(arguments_.out));
    DEX_ASSIGN_OR_RETURN(JobBook book, JobBook::open(fs::path(arguments_.out) / "jobs.json"));
    const auto runs = runs_of(plan_);
    for (const auto& run : runs) {
      DEX_ASSIGN_OR_RETURN(const EndedJob ended, run_job(context_, plan_, run, book));
      RunResult result = result_of(run, ended);
      if (result.failure.empty()) {
        look_at_adapter(result);
        DEX_RETURN_IF_ERROR(measure_tasks(context_, plan_, book, result));
      }
      results_.push_back(std::move(result));
      context_.output.note("  [" + std::to_string(results_.size()) + "/" +
                           std::to_string(runs.size()) + "] " + line_of(results_.back()));
      // After every run, so that a study that is broken off has its report so far.
      DEX_RETURN_IF_ERROR(write());
    }
    return {};
  }

  [[nodiscard]] std::string report() const {
    return markdown(data_, command(), plan_, summarise(plan_, results_));
  }

 private:
  // Size, and the speed of decoding with the method's first adapter.
  void look_at_adapter(RunResult& result) {
    const auto adapter = context_.client.get_adapter(result.adapter);
    if (adapter.ok()) result.artefact_bytes = adapter->bytes();
    if (result.run.seed != plan_.seeds.front() || arguments_.speed_pairs == 0) return;
    if (result.decoding.whole) {
      if (!result.decoding.merged)
        result.not_served = "decoding not measured: a model of another shape than the base's";
      return;
    }
    const Status measured =
        measure_decoding(context_, plan_.common.model, arguments_.speed_pairs, result);
    if (!measured.ok()) result.not_served = "decoding not measured: " + measured.message();
  }

  Status write() const {
    const auto rows = summarise(plan_, results_);
    const fs::path out = arguments_.out;
    DEX_RETURN_IF_ERROR(base::write_file_atomically(out / "report.md",
                                                    markdown(data_, command(), plan_, rows), 0644));
    DEX_RETURN_IF_ERROR(base::write_file_atomically(
        out / "report.json", to_json(data_, command(), plan_, rows, results_).dump(2) + "\n",
        0644));
    return base::write_file_atomically(out / kLossPicture, loss_svg(rows, results_), 0644);
  }

  [[nodiscard]] std::string command() const {
    std::string text = "dexctl study --model " + plan_.common.model + " --training-file " +
                       arguments_.spec.training_file + " --validation-file " +
                       arguments_.spec.validation_file + " --methods " + arguments_.methods +
                       " --seeds " + arguments_.seeds + " --preset " + plan_.preset +
                       " --max-steps " + plan_.common.max_steps;
    if (!plan_.common.batch_size.empty()) text += " --batch-size " + plan_.common.batch_size;
    if (!plan_.common.max_seq_length.empty())
      text += " --max-seq-length " + plan_.common.max_seq_length;
    for (const auto& set : plan_.common.sets) text += " --set " + set;
    for (const auto& task : plan_.tasks) text += " --task '" + task.name + "'";
    return text;
  }

  Context& context_;
  const StudyArguments& arguments_;
  const StudyPlan plan_;
  const std::string data_;  // the training file's name, for the report's title
  std::vector<RunResult> results_;
};

// What every method would cost; refuses before the first job what a later one would be refused for.
Result<double> estimate_all(Context& context, const StudyPlan& plan) {
  double seconds = 0;
  std::vector<std::pair<std::string, v1::FineTuningJobSpec>> effective;
  for (const auto& method : plan.methods) {
    DEX_ASSIGN_OR_RETURN(const auto spec, spec_of(plan, {method, plan.seeds.front()}));
    DEX_ASSIGN_OR_RETURN(const auto estimate, context.client.estimate_job(spec));
    const double all =
        estimate.expected_duration_seconds() * static_cast<double>(plan.seeds.size());
    context.output.note("  " + method + ": " + std::to_string(plan.seeds.size()) + " × " +
                        human_seconds(estimate.expected_duration_seconds()) + ", trains " +
                        human_count(static_cast<double>(estimate.trained_parameters())) +
                        " parameters");
    seconds += all;
    effective.emplace_back(method, estimate.effective_config().spec());
  }
  DEX_RETURN_IF_ERROR(check_same_rows(effective));
  DEX_RETURN_IF_ERROR(check_distinct(effective));
  return seconds;
}

// With ids in place of the paths of its files.
Result<StudyTask> study_task(Context& context, const std::string& text) {
  StudyTask out;
  out.name = text;
  DEX_ASSIGN_OR_RETURN(out.task, parse_task(text));
  if (out.task.has_instructions()) {
    return base::invalid_argument(
        "INVALID_FIELD", "--task \"" + text + "\": instructions are answered and not measured");
  }
  DEX_RETURN_IF_ERROR(upload_task_files(context, out.task, Upload::kAllowed));
  return out;
}

// Refuses before the first job what no evaluation would take.
Status check_tasks(Context& context, const StudyPlan& plan) {
  if (plan.tasks.empty()) return {};
  v1::CreateEvaluationRequest request;
  *request.mutable_spec() = evaluation_of(plan, "");
  request.set_validate_only(true);
  return context.client.create_evaluation(request).status();
}

Result<StudyPlan> plan_of(Context& context, const StudyArguments& arguments) {
  StudyPlan plan;
  DEX_ASSIGN_OR_RETURN(plan.methods, parse_methods(arguments.methods));
  if (add_control(plan.methods)) {
    context.output.note(std::string("study: ") + kControl +
                        " is added, or nobody could tell what of a gain is due to the branch");
  }
  DEX_ASSIGN_OR_RETURN(plan.seeds, parse_seeds(arguments.seeds));
  plan.preset = arguments.preset;
  plan.common = arguments.spec;
  DEX_ASSIGN_OR_RETURN(plan.common.training_file,
                       file_argument(context, plan.common.training_file));
  DEX_ASSIGN_OR_RETURN(plan.common.validation_file,
                       file_argument(context, plan.common.validation_file));
  for (const std::string& text : arguments.tasks) {
    DEX_ASSIGN_OR_RETURN(StudyTask task, study_task(context, text));
    plan.tasks.push_back(std::move(task));
  }
  DEX_RETURN_IF_ERROR(check_tasks(context, plan));
  return plan;
}

int study(Context& context, const StudyArguments& arguments) {
  if (!context.request_id.empty()) {
    context.output.failure(base::invalid_argument(
        "INVALID_FIELD",
        "a study is many changes, each with a request id of its own that follows "
        "from what it trains; leave --request-id out"));
    return kUsage;
  }
  const auto plan = plan_of(context, arguments);
  if (!plan.ok()) return context.output.failure(plan.status());
  context.output.note("study: " + std::to_string(plan->methods.size()) + " methods, " +
                      std::to_string(plan->seeds.size()) + " seeds; the report goes to " +
                      arguments.out + "/");
  const auto seconds = estimate_all(context, *plan);
  if (!seconds.ok()) return context.output.failure(seconds.status());
  context.output.note(
      "  about " + human_seconds(*seconds) + " in all on one worker" +
      (plan->tasks.empty() ? "" : ", and an evaluation of base and result for each run"));
  if (arguments.plan_only) return kDone;
  Study study(context, arguments, *plan,
              fs::path(arguments.spec.training_file).filename().string());
  const Status status = study.run();
  if (status.code() == base::Code::kCancelled) {
    context.output.note("the job that runs goes on; the same command takes the study up again");
    return kInterrupted;
  }
  if (!status.ok()) return context.output.failure(status);
  context.output.out() << study.report() << std::flush;
  return kDone;
}

}  // namespace

void add_study(CLI::App& app, Action& action) {
  auto* verb = add_verb(app, "study",
                        "compare methods on your data: equal budgets, several seeds, one report",
                        "dexctl study --model smollm2-135m-instruct --training-file train.jsonl "
                        "--validation-file valid.jsonl --methods dex,kvo_only --seeds 1,2,3 "
                        "--max-steps 60 --batch-size 4 --max-seq-length 256");
  auto arguments = std::make_shared<StudyArguments>();
  auto& spec = arguments->spec;
  verb->add_option("--model", spec.model, "base model")->required();
  verb->add_option("--training-file", spec.training_file, "file id, or a path that is uploaded")
      ->required();
  verb->add_option("--validation-file", spec.validation_file, "likewise; the losses are over it")
      ->required();
  verb->add_option("--methods", arguments->methods,
                   "of " + method_names() +
                       "; with dex, kvo_only is always among them. dex:VALUE is dex with another "
                       "dex.train or dex.sign than the preset's: dex:dex_only trains the branch "
                       "alone, dex:plus or dex:minus shows the noise between equals")
      ->capture_default_str();
  verb->add_option("--seeds", arguments->seeds, "1,2,3 or 1-5; each is one order of the data")
      ->capture_default_str();
  verb->add_option("--preset", arguments->preset,
                   "of dex and its variants; kvo_only gets the same rates")
      ->capture_default_str();
  verb->add_option("--max-steps", spec.max_steps, "updates of every run")->required();
  verb->add_option("--batch-size", spec.batch_size, "sequences an update");
  verb->add_option("--max-seq-length", spec.max_seq_length, "tokens a sequence");
  verb->add_option(
          "--set", spec.sets,
          "a field of every run (evaluation.max_tokens=8192), or of one method's (lora.r=16)")
      ->allow_extra_args(false);
  verb->add_option("--task", arguments->tasks,
                   "a task of dexctl evaluations, with its file and options as --promote-if has "
                   "them, which measures base and result of every run beside the held-out loss: "
                   "\"multiple_choice(mmlu.csv, samples=500)\", \"answers(nq.jsonl)\" (may be "
                   "repeated)")
      ->allow_extra_args(false);
  verb->add_option("--out", arguments->out, "folder of report.md, report.json, loss.svg, jobs.json")
      ->capture_default_str();
  verb->add_option(
          "--speed-pairs", arguments->speed_pairs,
          "generations of base and adapter in turn, merged and unmerged; 0 to measure none")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  verb->add_flag("--plan", arguments->plan_only, "only show what it would take");
  verb->callback(
      [&action, arguments] { action = [=](Context& c) { return study(c, *arguments); }; });
}

}  // namespace dex::cli
