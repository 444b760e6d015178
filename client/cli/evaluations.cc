#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <ostream>

#include "client/cli/command.h"
#include "client/cli/evaluation_flags.h"
#include "client/cli/evaluation_view.h"
#include "client/cli/exit_code.h"
#include "client/cli/names.h"
#include "client/cli/progress_view.h"
#include "client/cli/question.h"
#include "client/cli/report_folder.h"
#include "client/cli/set_field.h"
#include "client/cli/task_files.h"

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
  for (auto& task : *spec->mutable_tasks()) {
    if (const auto uploaded = upload_task_files(context, task, upload); !uploaded.ok())
      return context.output.failure(uploaded);
  }
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

struct GetEvaluation {
  std::string id;
  bool markdown = false;
  std::string out;  // folder of the report; empty: none is written
};

int get_evaluation(Context& context, const GetEvaluation& arguments) {
  const bool to_folder = !arguments.out.empty();
  auto evaluation = context.client.get_evaluation(arguments.id, to_folder);
  if (!evaluation.ok()) return context.output.failure(evaluation.status());
  if (!arguments.markdown && !to_folder) return show_evaluation(context, *evaluation);
  if (evaluation->report_markdown().empty()) {
    return context.output.failure(base::failed_precondition(
        "JOB_STATE_CONFLICT", "evaluation " + arguments.id + " has no report: it is " +
                                  words(short_name(evaluation->state()))));
  }
  if (to_folder) {
    const auto files = report_files(*evaluation);
    if (const auto written = write_report(arguments.out, files); !written.ok())
      return context.output.failure(written);
    for (const ReportFile& file : files)
      context.output.note("wrote " + (std::filesystem::path(arguments.out) / file.name).string());
    for (const std::string& name : evaluation->pictures_left_out())
      context.output.note("left out, too large for one reply: " + name);
    evaluation->clear_pictures();
    if (!arguments.markdown) return show_evaluation(context, *evaluation);
  }
  context.output.out() << evaluation->report_markdown() << std::flush;
  return kDone;
}

int download_evaluation(Context& context, const std::string& id, const std::string& folder) {
  const base::Status status = context.client.download_evaluation(id, folder);
  if (!status.ok()) return context.output.failure(status);
  context.output.note("unpacked into " + folder + ", checksums agree");
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

struct ListSamples {
  v1::ListEvaluationSamplesRequest request;
  int limit = 20;
};

// Page by page until there are as many as were asked for.
int list_samples(Context& context, const ListSamples& arguments) {
  v1::ListEvaluationSamplesRequest request = arguments.request;
  v1::ListEvaluationSamplesResponse all;
  do {
    request.set_page_size(std::min(arguments.limit - all.samples_size(), 1000));
    auto reply = context.client.list_evaluation_samples(request);
    if (!reply.ok()) return context.output.failure(reply.status());
    for (auto& sample : *reply->mutable_samples()) *all.add_samples() = std::move(sample);
    all.set_next_page_token(reply->next_page_token());
    request.set_page_token(reply->next_page_token());
  } while (!all.next_page_token().empty() && all.samples_size() < arguments.limit);
  if (context.output.format() == Format::kTable && all.samples_size() > 0) {
    for (const auto& sample : all.samples())
      context.output.out() << sample_text(sample, context.output.terminal());
    context.output.out() << std::flush;
    return kDone;
  }
  std::vector<std::string> items;
  for (const auto& sample : all.samples()) items.push_back(std::to_string(sample.item()));
  context.output.list(all, items, {}, "no such samples");
  return kDone;
}

int compare_evaluations(Context& context, const v1::CompareEvaluationsRequest& request) {
  const auto comparison = context.client.compare_evaluations(request);
  if (!comparison.ok()) return context.output.failure(comparison.status());
  if (context.output.format() == Format::kTable) {
    context.output.out() << comparison_text(*comparison, context.output.terminal()) << std::flush;
  } else {
    context.output.result(*comparison, comparison->a() + " " + comparison->b(), {});
  }
  return exit_code(*comparison);
}

int cancel_evaluation(Context& context, const std::string& id, bool wait) {
  const auto evaluation = context.client.cancel_evaluation(id);
  if (!evaluation.ok()) return context.output.failure(evaluation.status());
  if (!wait) return show_evaluation(context, *evaluation);
  const int code = follow_evaluation(context, id, 0);
  return code == kJobStopped ? kDone : code;
}

int delete_evaluation(Context& context, const std::string& id, bool yes) {
  int code = kDone;
  if (!yes && !agreed(context, "Delete the evaluation " + id + " and its files?", code))
    return code;
  const auto deleted = context.client.delete_evaluation(id);
  if (!deleted.ok()) return context.output.failure(deleted.status());
  context.output.result(*deleted, deleted->id(), {{"DELETED", deleted->id()}});
  return kDone;
}

void add_create_evaluation(CLI::App& noun, Action& action) {
  auto* verb =
      add_verb(noun, "create", "measure a base model, and adapters against it on the same samples",
               "dexctl evaluations create --adapter ft:… --task perplexity --file "
               "wiki.test.raw --set context_length=1024 --follow");
  auto given = std::make_shared<EvaluateArguments>();
  auto& flags = given->flags;
  verb->add_option("--model", flags.model, "base model; not needed beside --adapter");
  verb->add_option("--adapter", flags.adapters,
                   "adapter to compare with its base (up to three); ID@0.5: with half its λ, ID@0: "
                   "without its branch")
      ->allow_extra_args(false);
  verb->add_option("--task", flags.task, task_names());
  verb->add_option(
      "--file", flags.file,
      "the task's data, a file id or a path that is uploaded first: plain text or JSON "
      "Lines (perplexity; multi_needle, which has a text of its own without one), MMLU's CSV or "
      "BBQ's JSON Lines (multiple_choice), {text, label} (icl), {question, context, answers} "
      "(answers), "
      "AlpacaEval's set (instructions)");
  verb->add_option("--shots-file", flags.shots_file,
                   "multiple_choice with --set n_shot=…: where examples are drawn from");
  verb->add_option("--set", flags.sets,
                   "any option of the task: --set stride=512, --set n_needles=4 (may be repeated)")
      ->allow_extra_args(false);
  verb->add_flag("--against-int8", flags.against_int8,
                 "each of them once more in eight-bit weights, as a worker with --serve-dtype int8 "
                 "serves it; evaluations compare ID ID --subject-a NAME --subject-b NAME-int8 then "
                 "pairs an adapter with itself");
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
  noun->alias("eval");
  noun->require_subcommand(1);
  add_create_evaluation(*noun, action);

  auto got = std::make_shared<GetEvaluation>();
  auto* verb = add_verb(*noun, "get", "one evaluation with its results",
                        "dexctl evaluations get eval-01… --out report/");
  verb->add_option("id", got->id, "evaluation id")->required();
  verb->add_flag("--markdown", got->markdown, "only the report, in Markdown, with heat maps");
  verb->add_option("--out", got->out,
                   "folder that gets report.md and the pictures that it shows (SVG)");
  verb->callback([&action, got] { action = [=](Context& c) { return get_evaluation(c, *got); }; });

  auto id = std::make_shared<std::string>();
  verb =
      add_verb(*noun, "list", "the newest evaluations", "dexctl evaluations list --state running");
  auto listed = std::make_shared<ListEvaluations>();
  verb->add_option("--state", listed->states,
                   "queued, running, succeeded, failed, cancelled … (may be repeated)")
      ->allow_extra_args(false);
  verb->add_option("--limit", listed->limit, "how many, 1 to 1000");
  verb->callback(
      [&action, listed] { action = [=](Context& c) { return list_evaluations(c, *listed); }; });

  auto sampled = std::make_shared<ListSamples>();
  verb = add_verb(*noun, "samples", "what was asked and answered, of an evaluation that succeeded",
                  "dexctl evaluations samples eval-01… --subject night --only-changed");
  verb->add_option("id", *id, "evaluation id")->required();
  verb->add_option("--task", *sampled->request.mutable_task(),
                   "of one task: multiple_choice …, or by its place: tasks[1]");
  verb->add_option("--subject", *sampled->request.mutable_subject(),
                   "of one subject, by its label");
  verb->add_flag_callback(
      "--only-changed", [sampled] { sampled->request.set_only_changed(true); },
      "only where the score is another than the first subject's");
  verb->add_option("--limit", sampled->limit, "how many, 1 to 100000")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  verb->callback([&action, id, sampled] {
    sampled->request.set_id(*id);
    action = [=](Context& c) { return list_samples(c, *sampled); };
  });

  auto compared = std::make_shared<v1::CompareEvaluationsRequest>();
  verb =
      add_verb(*noun, "compare",
               "what one evaluation measured against another, item by item: the difference b - a "
               "of each row with its paired interval. Both must have measured the same samples: "
               "the same tasks, options, seed and bytes. Ends with 7 where b is surely worse over "
               "everything",
               "dexctl evaluations compare eval-01… eval-02… --subject-a old --subject-b new");
  verb->add_option("a", *compared->mutable_a(), "evaluation that is compared with")->required();
  verb->add_option("b", *compared->mutable_b(), "evaluation that is compared; may be the same one")
      ->required();
  verb->add_option(
      "--subject-a", *compared->mutable_subject_a(),
      "one subject of a, by its label, with --subject-b; without them each subject of a "
      "is compared with the one in its place in b");
  verb->add_option("--subject-b", *compared->mutable_subject_b(), "likewise of b");
  verb->callback([&action, compared] {
    action = [=](Context& c) { return compare_evaluations(c, *compared); };
  });

  auto after = std::make_shared<int64_t>(0);
  verb = add_verb(*noun, "watch", "follow an evaluation; Ctrl-C ends the watching only",
                  "dexctl evaluations watch eval-01…");
  verb->add_option("id", *id, "evaluation id")->required();
  verb->add_option("--after", *after, "only events after this sequence number");
  verb->callback([&action, id, after] {
    action = [=](Context& c) { return follow_evaluation(c, *id, *after); };
  });

  auto folder = std::make_shared<std::string>();
  verb = add_verb(*noun, "download",
                  "write what an evaluation has published to a new folder and check it: rows, "
                  "report, pictures of heads, answers to instructions",
                  "dexctl evaluations download eval-01… my-evaluation");
  verb->add_option("id", *id, "evaluation id")->required();
  verb->add_option("folder", *folder, "where to; must not exist or be empty")->required();
  verb->callback([&action, id, folder] {
    action = [=](Context& c) { return download_evaluation(c, *id, *folder); };
  });

  auto wait = std::make_shared<bool>(false);
  verb = add_verb(*noun, "cancel", "stop an evaluation", "dexctl evaluations cancel eval-01…");
  verb->add_option("id", *id, "evaluation id")->required();
  verb->add_flag("--wait", *wait, "until it has stopped");
  verb->callback([&action, id, wait] {
    action = [=](Context& c) { return cancel_evaluation(c, *id, *wait); };
  });

  auto yes = std::make_shared<bool>(false);
  verb = add_verb(*noun, "delete",
                  "forget an evaluation that has ended: record, events, results, samples",
                  "dexctl evaluations delete eval-01… --yes");
  verb->add_option("id", *id, "evaluation id")->required();
  verb->add_flag("-y,--yes", *yes, "don't ask");
  verb->callback(
      [&action, id, yes] { action = [=](Context& c) { return delete_evaluation(c, *id, *yes); }; });
}

}  // namespace dex::cli
