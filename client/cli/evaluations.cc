#include <CLI/CLI.hpp>
#include <fstream>
#include <ostream>

#include "client/cli/command.h"
#include "client/cli/evaluation_flags.h"
#include "client/cli/evaluation_view.h"
#include "client/cli/exit_code.h"
#include "client/cli/file_argument.h"
#include "client/cli/names.h"
#include "client/cli/progress_view.h"
#include "client/cli/set_field.h"
#include "proto/task_files.h"

namespace dex::cli {

namespace {

struct EvaluateArguments {
  EvaluationFlags flags;
  bool dry_run = false;
  bool follow = false;
};

int show_evaluation(Context& context, const v1::Evaluation& evaluation) {
  if (context.output.format() == Format::kTable) {
    context.output.out() << evaluation_text(evaluation, context.output.terminal()) << std::flush;
  } else {
    context.output.result(evaluation, evaluation.id(), {});
  }
  return kDone;
}

// Puts ids in the place of paths.
base::Status upload_files(Context& context, v1::EvaluationSpec& spec, Upload upload) {
  for (auto& task : *spec.mutable_tasks()) {
    for (const auto& [field, file] : proto::task_files(task)) {
      if (file.empty()) continue;
      DEX_ASSIGN_OR_RETURN(const std::string id,
                           file_argument(context, file, v1::FILE_PURPOSE_EVALS, upload));
      proto::set_task_file(task, field, id);
    }
  }
  return {};
}

// What is worth a line while an evaluation runs.
void say_event(Context& context, const v1::FineTuningEvent& event) {
  context.output.note("  " + (event.message().empty() ? event.type() : event.message()));
  for (const auto& row : event.job_evaluation().rows()) {
    std::string text = "    " + row.subject() + " " + row.metric() + " " + fixed(row.value(), 4);
    if (row.has_low()) text += " (" + fixed(row.low(), 4) + " – " + fixed(row.high(), 4) + ")";
    if (row.has_delta()) text += ", " + words(short_name(row.verdict()));
    context.output.note(text);
  }
}

// Until the evaluation has ended; Ctrl-C ends the watching, not the evaluation.
int follow_evaluation(Context& context, const std::string& id, int64_t after) {
  int64_t last_sequence = after;
  v1::JobState shown = v1::JOB_STATE_UNSPECIFIED;
  const base::Status status =
      context.client.watch_evaluation(id, after, [&](const v1::WatchEvaluationResponse& message) {
        if (message.has_snapshot() && message.snapshot().state() != shown) {
          shown = message.snapshot().state();
          context.output.note("  evaluation " + id + ": " + words(short_name(shown)));
        }
        if (message.has_event()) {
          last_sequence = message.event().sequence();
          say_event(context, message.event());
        }
        return true;
      });
  if (status.code() == base::Code::kCancelled) {
    context.output.note("the evaluation goes on; watch it again: dexctl evaluations watch " + id +
                        " --after " + std::to_string(last_sequence));
    return kInterrupted;
  }
  if (!status.ok()) return context.output.failure(status);
  const auto evaluation = context.client.get_evaluation(id);
  if (!evaluation.ok()) return context.output.failure(evaluation.status());
  show_evaluation(context, *evaluation);
  return exit_code(*evaluation);
}

int create_evaluation(Context& context, const EvaluateArguments& arguments) {
  v1::CreateEvaluationRequest request;
  auto spec = make_evaluation_spec(arguments.flags);
  if (!spec.ok()) return context.output.failure(spec.status());
  const Upload upload = arguments.dry_run ? Upload::kRefused : Upload::kAllowed;
  if (const auto uploaded = upload_files(context, *spec, upload); !uploaded.ok())
    return context.output.failure(uploaded);
  *request.mutable_spec() = std::move(spec).value();
  request.set_validate_only(arguments.dry_run);
  const auto evaluation = context.client.create_evaluation(request);
  if (!evaluation.ok()) return context.output.failure(evaluation.status());
  if (arguments.follow && !arguments.dry_run)
    return follow_evaluation(context, evaluation->id(), 0);
  show_evaluation(context, *evaluation);
  if (!arguments.dry_run)
    context.output.note("watch it: dexctl evaluations watch " + evaluation->id());
  return kDone;
}

int get_evaluation(Context& context, const std::string& id, bool markdown) {
  const auto evaluation = context.client.get_evaluation(id);
  if (!evaluation.ok()) return context.output.failure(evaluation.status());
  if (!markdown) return show_evaluation(context, *evaluation);
  if (evaluation->report_markdown().empty()) {
    return context.output.failure(base::failed_precondition(
        "JOB_STATE_CONFLICT",
        "evaluation " + id + " has no report: it is " + words(short_name(evaluation->state()))));
  }
  context.output.out() << evaluation->report_markdown() << std::flush;
  return kDone;
}

struct ListEvaluations {
  std::vector<std::string> states;
  int limit = 20;
};

int list_evaluations(Context& context, const ListEvaluations& arguments) {
  v1::ListEvaluationsRequest request;
  request.set_page_size(arguments.limit);
  for (const auto& state : arguments.states) {
    const base::Status status = set_field(*request.mutable_filter(), "states", state);
    if (!status.ok()) return context.output.failure(status);
  }
  const auto reply = context.client.list_evaluations(request);
  if (!reply.ok()) return context.output.failure(reply.status());
  std::vector<std::string> ids;
  for (const auto& evaluation : reply->evaluations()) ids.push_back(evaluation.id());
  context.output.list(*reply, ids,
                      evaluation_table({reply->evaluations().begin(), reply->evaluations().end()}),
                      "no such evaluations; start one: dexctl evaluations create --help");
  return kDone;
}

int cancel_evaluation(Context& context, const std::string& id, bool wait) {
  const auto evaluation = context.client.cancel_evaluation(id);
  if (!evaluation.ok()) return context.output.failure(evaluation.status());
  if (!wait) return show_evaluation(context, *evaluation);
  const int code = follow_evaluation(context, id, 0);
  return code == kJobStopped ? kDone : code;
}

void add_create_evaluation(CLI::App& noun, Action& action) {
  auto* verb =
      add_verb(noun, "create", "measure a base model, and adapters against it on the same samples",
               "dexctl evaluations create --adapter ft:… --task perplexity --file "
               "wiki.test.raw --set context_length=1024 --follow");
  auto given = std::make_shared<EvaluateArguments>();
  auto& flags = given->flags;
  verb->add_option("--model", flags.model, "base model; not needed beside --adapter");
  verb->add_option("--adapter", flags.adapters, "adapter to compare with its base (up to three)")
      ->allow_extra_args(false);
  verb->add_option("--task", flags.task, task_names());
  verb->add_option(
      "--file", flags.file,
      "the task's data, a file id or a path that is uploaded first: plain text or JSON "
      "Lines (perplexity, multi_needle), MMLU's CSV or BBQ's JSON Lines "
      "(multiple_choice), {text, label} (icl), {question, context, answers} (answers)");
  verb->add_option("--shots-file", flags.shots_file,
                   "multiple_choice with --set n_shot=…: where examples are drawn from");
  verb->add_option("--set", flags.sets,
                   "any option of the task: --set stride=512, --set n_needles=4 (may be repeated)")
      ->allow_extra_args(false);
  verb->add_option("--seed", flags.seed, "of every draw: the same seed, the same numbers (0)");
  verb->add_option("--confidence", flags.confidence, "of intervals and verdicts (0.95)");
  verb->add_option("--metadata", flags.metadata, "key=value (may be repeated)")
      ->allow_extra_args(false);
  verb->add_option(
      "--spec", flags.spec_file,
      "JSON file of a dex.v1.EvaluationSpec, for several tasks; flags are added to it");
  verb->add_flag("--dry-run", given->dry_run,
                 "only check and show what would be done; nothing changes on the server, so files "
                 "must be there already");
  verb->add_flag("--follow", given->follow,
                 "watch until it has ended; the last thing shown is its result");
  verb->callback(
      [&action, given] { action = [=](Context& c) { return create_evaluation(c, *given); }; });
}

}  // namespace

void add_evaluations(CLI::App& app, Action& action) {
  auto* noun = app.add_subcommand("evaluations",
                                  "measure models and adapters: perplexity, questions, long texts");
  noun->require_subcommand(1);
  add_create_evaluation(*noun, action);

  auto id = std::make_shared<std::string>();
  auto markdown = std::make_shared<bool>(false);
  auto* verb = add_verb(*noun, "get", "one evaluation with its results",
                        "dexctl evaluations get eval-01… --markdown");
  verb->add_option("id", *id, "evaluation id")->required();
  verb->add_flag("--markdown", *markdown, "only the report, in Markdown, with heat maps");
  verb->callback([&action, id, markdown] {
    action = [=](Context& c) { return get_evaluation(c, *id, *markdown); };
  });

  verb =
      add_verb(*noun, "list", "the newest evaluations", "dexctl evaluations list --state running");
  auto listed = std::make_shared<ListEvaluations>();
  verb->add_option("--state", listed->states,
                   "queued, running, succeeded, failed, cancelled … (may be repeated)")
      ->allow_extra_args(false);
  verb->add_option("--limit", listed->limit, "how many, 1 to 1000");
  verb->callback(
      [&action, listed] { action = [=](Context& c) { return list_evaluations(c, *listed); }; });

  auto after = std::make_shared<int64_t>(0);
  verb = add_verb(*noun, "watch", "follow an evaluation; Ctrl-C ends the watching only",
                  "dexctl evaluations watch eval-01…");
  verb->add_option("id", *id, "evaluation id")->required();
  verb->add_option("--after", *after, "only events after this sequence number");
  verb->callback([&action, id, after] {
    action = [=](Context& c) { return follow_evaluation(c, *id, *after); };
  });

  auto wait = std::make_shared<bool>(false);
  verb = add_verb(*noun, "cancel", "stop an evaluation", "dexctl evaluations cancel eval-01…");
  verb->add_option("id", *id, "evaluation id")->required();
  verb->add_flag("--wait", *wait, "until it has stopped");
  verb->callback([&action, id, wait] {
    action = [=](Context& c) { return cancel_evaluation(c, *id, *wait); };
  });
}

}  // namespace dex::cli
