#include "client/cli/job_changes.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/exit_code.h"
#include "client/cli/job_view.h"
#include "client/cli/question.h"

namespace dex::cli {

namespace {

int show_changed(Context& context, const base::Result<v1::FineTuningJob>& job) {
  if (!job.ok()) return context.output.failure(job.status());
  context.output.result(*job, job->id(), job_details(*job));
  return kDone;
}

// A pause that comes too late finds the job ended; that is told by the exit code of the job.
int pause_and_wait(Context& context, const std::string& id) {
  const auto asked = context.client.pause_job(id);
  if (!asked.ok()) return context.output.failure(asked.status());
  if (asked->state() == v1::JOB_STATE_PAUSING)
    context.output.note("it finishes its step and writes a checkpoint …");
  const base::Status status =
      context.client.watch_job(id, 0, [](const v1::WatchFineTuningJobResponse& message) {
        const auto state = message.snapshot().state();
        return !message.has_snapshot() ||
               (state != v1::JOB_STATE_PAUSED && !client::has_ended(state));
      });
  if (status.code() == base::Code::kCancelled) return kInterrupted;
  if (!status.ok()) return context.output.failure(status);
  const auto job = context.client.get_job(id);
  const int shown = show_changed(context, job);
  if (shown == kDone && job->state() == v1::JOB_STATE_PAUSED)
    context.output.note("go on: dexctl jobs resume " + id);
  return shown == kDone && client::has_ended(job->state()) ? exit_code(*job) : shown;
}

struct UpdateArguments {
  std::string id, etag;
  std::optional<uint32_t> priority;
  std::optional<std::string> name;
  std::vector<std::string> metadata;
  bool clear_metadata = false;
};

int update(Context& context, const UpdateArguments& arguments) {
  v1::UpdateFineTuningJobRequest request;
  request.set_id(arguments.id);
  request.set_etag(arguments.etag);
  if (arguments.priority) request.set_priority(*arguments.priority);
  if (arguments.name) request.set_display_name(*arguments.name);
  request.set_clear_metadata(arguments.clear_metadata);
  for (const std::string& pair : arguments.metadata) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) {
      context.output.failure(base::invalid_field("--metadata", "must be key=value, got " + pair));
      return kUsage;
    }
    (*request.mutable_metadata())[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return show_changed(context, context.client.update_job(request));
}

int delete_job(Context& context, const std::string& id, bool with_adapter, bool yes) {
  int code = kDone;
  const std::string what = with_adapter ? ", its files and its adapter?" : " and its files?";
  if (!yes && !agreed(context, "Delete the job " + id + what, code)) return code;
  const auto deleted = context.client.delete_job(id, with_adapter);
  if (!deleted.ok()) return context.output.failure(deleted.status());
  context.output.result(*deleted, deleted->id(), {{"DELETED", deleted->id()}});
  return kDone;
}

void add_pause_and_resume(CLI::App& jobs, Action& action) {
  auto id = std::make_shared<std::string>();
  auto wait = std::make_shared<bool>(false);
  auto* verb = add_verb(jobs, "pause",
                        "hold a job; a running one writes a checkpoint first and loses no step",
                        "dexctl jobs pause ftjob-01… --wait\n"
                        "dexctl jobs resume ftjob-01…");
  verb->add_option("id", *id, "job id")->required();
  verb->add_flag("--wait", *wait, "until it has paused");
  verb->callback([&action, id, wait] {
    action = [=](Context& c) {
      return *wait ? pause_and_wait(c, *id) : show_changed(c, c.client.pause_job(*id));
    };
  });

  verb = add_verb(jobs, "resume",
                  "put a paused job back into the queue; it goes on where it was, or starts if it "
                  "was created with --hold",
                  "dexctl jobs resume ftjob-01…");
  verb->add_option("id", *id, "job id")->required();
  verb->callback([&action, id] {
    action = [=](Context& c) { return show_changed(c, c.client.resume_job(*id)); };
  });
}

void add_update(CLI::App& jobs, Action& action) {
  auto updated = std::make_shared<UpdateArguments>();
  auto* verb = add_verb(jobs, "update", "change priority, name or metadata of a job",
                        "dexctl jobs update ftjob-01… --priority 6 --metadata team=search\n"
                        "dexctl jobs update ftjob-01… --name \"second try\" --clear-metadata");
  verb->add_option("id", updated->id, "job id")->required();
  verb->add_option("--priority", updated->priority,
                   "0 to 9, higher first among your own waiting jobs; 7 to 9 need an admin");
  verb->add_option("--name", updated->name, "a name for people");
  verb->add_option("--metadata", updated->metadata,
                   "key=value (may be repeated); replaces all pairs there are")
      ->allow_extra_args(false);
  verb->add_flag("--clear-metadata", updated->clear_metadata, "remove all pairs");
  verb->add_option("--etag", updated->etag, "only if the job still has this etag (jobs get)");
  verb->callback([&action, updated] { action = [=](Context& c) { return update(c, *updated); }; });
}

void add_delete_and_redrive(CLI::App& jobs, Action& action) {
  auto id = std::make_shared<std::string>();
  auto with_adapter = std::make_shared<bool>(false);
  auto yes = std::make_shared<bool>(false);
  auto* verb = add_verb(jobs, "delete",
                        "forget an ended job: record, events, checkpoints; its adapter stays",
                        "dexctl jobs delete ftjob-01…\n"
                        "dexctl jobs delete ftjob-01… --with-adapter --yes");
  verb->add_option("id", *id, "job id")->required();
  verb->add_flag("--with-adapter", *with_adapter, "the adapter too; it must not be loaded");
  verb->add_flag("-y,--yes", *yes, "don't ask");
  verb->callback([&action, id, with_adapter, yes] {
    action = [=](Context& c) { return delete_job(c, *id, *with_adapter, *yes); };
  });

  auto deadline = std::make_shared<double>(0);
  verb = add_verb(jobs, "redrive",
                  "give a failed job another life, from its last checkpoint (operators)",
                  "dexctl jobs redrive ftjob-01…\n"
                  "dexctl jobs redrive ftjob-01… --deadline 86400");
  verb->add_option("id", *id, "job id")->required();
  verb->add_option("--deadline", *deadline,
                   "seconds from now until it expires; 0, the default: never")
      ->check(CLI::NonNegativeNumber);
  verb->callback([&action, id, deadline] {
    action = [=](Context& c) { return show_changed(c, c.client.redrive_job(*id, *deadline)); };
  });
}

}  // namespace

void add_job_changes(CLI::App& jobs, Action& action) {
  add_pause_and_resume(jobs, action);
  add_update(jobs, action);
  add_delete_and_redrive(jobs, action);
}

}  // namespace dex::cli
