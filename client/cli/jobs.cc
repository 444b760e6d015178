#include <CLI/CLI.hpp>
#include <ostream>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/file_argument.h"
#include "client/cli/heads.h"
#include "client/cli/job_changes.h"
#include "client/cli/job_filter.h"
#include "client/cli/job_spec.h"
#include "client/cli/job_view.h"
#include "client/cli/names.h"
#include "client/cli/progress_view.h"
#include "client/cli/question.h"
#include "client/cli/spec_flags.h"
#include "client/cli/sweep.h"
#include "client/cli/task_files.h"
#include "client/cli/watch.h"

namespace dex::cli {

namespace {

struct CreateArguments {
  SpecFlags spec;
  bool dry_run = false;
  bool probe = false;
  bool follow = false;
  bool yes = false;
};

}  // namespace

void add_spec_flags(CLI::App& verb, SpecFlags& flags) {
  verb.add_option(
      "--model", flags.model,
      "needed: a base model (dexctl models list), or the id of an adapter to go on from");
  verb.add_option("--training-file", flags.training_file,
                  "needed: a file id, or a path that is uploaded first");
  verb.add_option("--validation-file", flags.validation_file,
                  "likewise; without it rows are held out of the training file");
  verb.add_option(
      "--method", flags.method,
      "dex (default); kvo_only, the control without a branch; or lora, adapter, full, diff, whose "
      "options are --set lora.r=16 and the like");
  verb.add_option("--preset", flags.preset,
                  "auto (default), paper, small, medium, large, code, long-text, multilingual: "
                  "dexctl presets list. Of dex; kvo_only takes its rates");
  verb.add_option("--suffix", flags.suffix, "part of the adapter's name");
  verb.add_option("--name", flags.name, "a name for people");
  verb.add_option("--seed", flags.seed, "whole number; same seed, same result");
  verb.add_option("--epochs", flags.epochs, "passes over the data");
  verb.add_option("--max-steps", flags.max_steps, "number of updates, whatever --epochs says");
  verb.add_option("--batch-size", flags.batch_size, "sequences an update");
  verb.add_option("--learning-rate", flags.learning_rate,
                  "peak rate of W_K, W_V, W_O, or of what the method trains in their place");
  verb.add_option("--max-seq-length", flags.max_seq_length, "tokens a sequence");
  verb.add_option("--early-stopping", flags.patience,
                  "end the job after so many evaluations without a lower held-out loss; its best "
                  "weights are published");
  verb.add_option("--base-guard", flags.kl_max,
                  "end the job when KL to its base on general text exceeds so many nats a token "
                  "(your own text: --set watchdog.base_guard.probe_file=FILE)");
  verb.add_option(
          "--promote-if", flags.gates,
          "a gate that the adapter must pass to be promoted: held_out.loss<=0 (against the "
          "base), base_guard.kl<=0.1, branch_effect.value>=0.02; or a task of dexctl "
          "evaluations with its file and options, measured on base and adapter after the "
          "training, as a difference to the base: \"perplexity(wiki.test.raw).loss<=0\", "
          "\"multiple_choice(mmlu.csv, samples=500).acc_norm>=-0.02\", \"multi_needle(book.txt, "
          "lengths=1024,2048).accuracy[length=2048]>=-0.05\"; or to another adapter of the base, "
          "paired by sample: \"perplexity(wiki.test.raw).loss<=0 against ft:…\", and with "
          "\"against kvo_only ft:…\" to the control, trained by --method kvo_only on the same rows "
          "with the same seed (may be repeated)")
      ->allow_extra_args(false);
  verb.add_option("--set", flags.sets,
                  "any field of the spec: --set dex.lambda.end=0.5 (may be repeated)")
      ->allow_extra_args(false);
  verb.add_option("--metadata", flags.metadata, "key=value (may be repeated)")
      ->allow_extra_args(false);
  verb.add_option("--spec", flags.spec_file,
                  "JSON file of a dex.v1.FineTuningJobSpec; flags win over it");
}

base::Result<v1::FineTuningJobSpec> spec_with_files(Context& context, const SpecFlags& flags,
                                                    Upload upload) {
  const auto id_of = [&](const std::string& file) {
    return file_argument(context, file, v1::FILE_PURPOSE_FINE_TUNE, upload);
  };
  DEX_ASSIGN_OR_RETURN(v1::FineTuningJobSpec spec, make_spec(flags));
  DEX_ASSIGN_OR_RETURN(*spec.mutable_training_file(), id_of(spec.training_file()));
  if (spec.has_validation_file()) {
    DEX_ASSIGN_OR_RETURN(*spec.mutable_validation_file(), id_of(spec.validation_file()));
  }
  if (spec.watchdog().base_guard().has_probe_file()) {
    auto& file = *spec.mutable_watchdog()->mutable_base_guard()->mutable_probe_file();
    DEX_ASSIGN_OR_RETURN(file, id_of(file));
  }
  if (spec.dex().head_selection().calibration().has_file()) {
    auto& file =
        *spec.mutable_dex()->mutable_head_selection()->mutable_calibration()->mutable_file();
    DEX_ASSIGN_OR_RETURN(file, id_of(file));
  }
  for (auto& gate : *spec.mutable_gates()) {
    if (gate.has_evaluation())
      DEX_RETURN_IF_ERROR(upload_task_files(context, *gate.mutable_evaluation(), upload));
  }
  return spec;
}

namespace {

struct EstimateArguments {
  SpecFlags spec;
  bool probe = false;
};

base::Result<v1::Estimate> estimate_of(Context& context, const v1::FineTuningJobSpec& spec,
                                       bool probe) {
  if (probe) context.output.note("a worker does one update of it …");
  return context.client.estimate_job(spec, probe);
}

int estimate(Context& context, const EstimateArguments& arguments, Upload upload) {
  const auto spec = spec_with_files(context, arguments.spec, upload);
  if (!spec.ok()) return context.output.failure(spec.status());
  const auto estimate = estimate_of(context, *spec, arguments.probe);
  if (!estimate.ok()) return context.output.failure(estimate.status());
  if (context.output.format() == Format::kTable) {
    context.output.out() << estimate_text(*estimate, context.output.terminal()) << std::flush;
  } else {
    context.output.result(*estimate, "", {});
  }
  return estimate->allowed_to_proceed() ? kDone : kCapacity;
}

int create(Context& context, const CreateArguments& arguments) {
  if (arguments.dry_run) return estimate(context, {arguments.spec, false}, Upload::kRefused);
  if (!arguments.yes && !can_be_asked(context)) return kUsage;
  const auto spec = spec_with_files(context, arguments.spec, Upload::kAllowed);
  if (!spec.ok()) return context.output.failure(spec.status());
  const auto estimate = estimate_of(context, *spec, arguments.probe);
  if (!estimate.ok()) return context.output.failure(estimate.status());
  context.output.note(estimate_text(*estimate, context.output.terminal()));
  if (arguments.probe && !estimate->allowed_to_proceed()) {
    context.output.note("nothing was started");
    return kCapacity;
  }
  if (!arguments.yes && !said_yes(context, "Start the job?")) {
    context.output.note("nothing was started");
    return kInterrupted;
  }
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = *spec;
  const auto job = context.client.create_job(request);
  if (!job.ok()) return context.output.failure(job.status());
  const bool held = spec->has_auto_start() && !spec->auto_start();
  if (arguments.follow)
    return follow_job(context, job->id(), 0, held ? Until::kChecked : Until::kEnded);
  context.output.result(*job, job->id(), job_details(*job));
  context.output.note("watch it: dexctl jobs watch " + job->id());
  return kDone;
}

struct ListArguments {
  JobFilterFlags filter;
  int limit = 20;
};

int list(Context& context, const ListArguments& arguments) {
  v1::ListFineTuningJobsRequest request;
  request.set_page_size(arguments.limit);
  auto filter = make_job_filter(arguments.filter);
  if (!filter.ok()) return context.output.failure(filter.status());
  *request.mutable_filter() = std::move(*filter);
  const auto reply = context.client.list_jobs(request);
  if (!reply.ok()) return context.output.failure(reply.status());
  std::vector<std::string> ids;
  for (const auto& job : reply->jobs()) ids.push_back(job.id());
  context.output.list(*reply, ids, job_table({reply->jobs().begin(), reply->jobs().end()}),
                      "no such jobs; start one: dexctl jobs create --help");
  return kDone;
}

int get_job(Context& context, const std::string& id) {
  const auto job = context.client.get_job(id);
  if (!job.ok()) return context.output.failure(job.status());
  context.output.result(*job, job->id(), job_details(*job));
  return kDone;
}

int cancel(Context& context, const std::string& id, bool wait) {
  const auto job = context.client.cancel_job(id);
  if (!job.ok()) return context.output.failure(job.status());
  if (wait) {
    const int code = follow_job(context, id, 0);
    return code == kJobStopped ? kDone : code;
  }
  context.output.result(*job, job->id(), job_details(*job));
  return kDone;
}

int events(Context& context, const std::string& id, int64_t after) {
  v1::ListFineTuningEventsRequest request;
  request.set_id(id);
  request.set_page_size(1000);
  Table table = {{"SEQUENCE", "TIME", "TYPE", "MESSAGE"}};
  while (true) {
    request.set_after_sequence(after);
    const auto reply = context.client.list_events(request);
    if (!reply.ok()) return context.output.failure(reply.status());
    for (const auto& event : reply->events()) {
      after = event.sequence();
      if (context.output.format() == Format::kTable) {
        table.push_back({std::to_string(event.sequence()), local_time(event.create_time()),
                         event.type(), event.message()});
      } else {
        context.output.result(event, event.id(), {});
      }
    }
    if (!reply->has_more() || reply->events().empty()) break;
  }
  if (table.size() > 1) context.output.out() << render(table, context.output.terminal());
  context.output.out().flush();
  return kDone;
}

void add_create_and_estimate(CLI::App& noun, Action& action) {
  auto* verb = add_verb(noun, "create",
                        "train an adapter: shows effective values and estimate, asks, starts",
                        "dexctl jobs create --model smollm2-135m-instruct --training-file "
                        "rows.jsonl --preset code --follow\n"
                        "dexctl jobs create --model ft:… --training-file more.jsonl --probe --yes");
  auto created = std::make_shared<CreateArguments>();
  add_spec_flags(*verb, created->spec);
  auto* dry_run = verb->add_flag(
      "--dry-run", created->dry_run,
      "only show effective values and estimate; nothing changes on the server, so files "
      "must be there already");
  verb->add_flag("--probe", created->probe,
                 "before anything is queued let a worker do one update, on the longest rows; what "
                 "does not fit is not started")
      ->excludes(dry_run);
  verb->add_flag("--hold", created->spec.hold,
                 "a worker only checks it, with one update on the longest rows; then it waits for "
                 "dexctl jobs resume");
  verb->add_flag("--follow", created->follow,
                 "watch until the job has ended, with --hold until it is checked; the last line is "
                 "the job");
  verb->add_flag("-y,--yes", created->yes, "don't ask");
  verb->callback([&action, created] { action = [=](Context& c) { return create(c, *created); }; });

  verb = add_verb(
      noun, "estimate", "what a job would take: time, memory, sizes; nothing is started",
      "dexctl jobs estimate --model smollm2-135m-instruct --training-file file-01… --preset paper\n"
      "dexctl jobs estimate --model smollm2-135m-instruct --training-file rows.jsonl --probe");
  auto estimated = std::make_shared<EstimateArguments>();
  add_spec_flags(*verb, estimated->spec);
  verb->add_flag("--probe", estimated->probe,
                 "let a worker do one update, on the longest rows, and say what that took; waits "
                 "for it, 5 minutes at most");
  verb->callback([&action, estimated] {
    action = [=](Context& c) { return estimate(c, *estimated, Upload::kAllowed); };
  });
}

}  // namespace

void add_jobs(CLI::App& app, Action& action) {
  auto* noun = app.add_subcommand(
      "jobs", "fine-tuning jobs: create, sweep, list, watch, pause, cancel, delete");
  noun->require_subcommand(1);
  add_create_and_estimate(*noun, action);
  add_sweep(*noun, action);

  auto* verb = add_verb(*noun, "list", "the newest jobs",
                        "dexctl jobs list --state running --state queued\n"
                        "dexctl jobs list --method lora --created-after 2026-11-30 --text legal");
  auto listed = std::make_shared<ListArguments>();
  add_job_filter_flags(*verb, listed->filter);
  verb->add_option("--limit", listed->limit, "how many, 1 to 1000");
  verb->callback([&action, listed] { action = [=](Context& c) { return list(c, *listed); }; });

  auto id = std::make_shared<std::string>();
  verb = add_verb(*noun, "get", "one job", "dexctl jobs get ftjob-01… --output json");
  verb->add_option("id", *id, "job id")->required();
  verb->callback([&action, id] { action = [=](Context& c) { return get_job(c, *id); }; });

  auto after = std::make_shared<int64_t>(0);
  verb = add_verb(*noun, "watch", "follow a job; Ctrl-C ends the watching, not the job",
                  "dexctl jobs watch ftjob-01…");
  verb->add_option("id", *id, "job id")->required();
  verb->add_option("--after", *after, "only events after this sequence number");
  verb->callback(
      [&action, id, after] { action = [=](Context& c) { return follow_job(c, *id, *after); }; });

  verb = add_verb(*noun, "events", "a job's stored events, oldest first",
                  "dexctl jobs events ftjob-01… --output json");
  verb->add_option("id", *id, "job id")->required();
  verb->add_option("--after", *after, "only events after this sequence number");
  verb->callback(
      [&action, id, after] { action = [=](Context& c) { return events(c, *id, *after); }; });

  add_heads(*noun, action);
  add_job_changes(*noun, action);

  auto wait = std::make_shared<bool>(false);
  verb = add_verb(*noun, "cancel", "stop a job", "dexctl jobs cancel ftjob-01… --wait");
  verb->add_option("id", *id, "job id")->required();
  verb->add_flag("--wait", *wait, "until it has stopped");
  verb->callback(
      [&action, id, wait] { action = [=](Context& c) { return cancel(c, *id, *wait); }; });
}

}  // namespace dex::cli
