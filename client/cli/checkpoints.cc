// `dexctl checkpoints`: what a job has saved, and having it save now.
#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/names.h"
#include "client/cli/terminal.h"

namespace dex::cli {

namespace {

// A figure that was not measured at that step stays empty.
std::string loss_or_none(bool has, double loss) {
  return has ? fixed(loss, 4) : "";
}

// Mean over layers that have a selected head, as measured after by_layer_step updates.
std::string branch_ratio(const v1::Checkpoint& checkpoint) {
  double sum = 0;
  int layers = 0;
  for (const float ratio : checkpoint.branch_ratio()) {
    if (std::isnan(ratio)) continue;
    sum += ratio;
    ++layers;
  }
  return layers == 0 ? "" : fixed(sum / layers, 4);
}

std::string marks(const v1::Checkpoint& checkpoint) {
  std::string text = checkpoint.is_best() ? "best" : "";
  if (checkpoint.is_last()) text += text.empty() ? "last" : ", last";
  return text;
}

int list(Context& context, const std::string& job, int limit, const std::string& after) {
  v1::ListFineTuningCheckpointsRequest request;
  request.set_job(job);
  request.set_page_size(limit);
  request.set_after(after);
  const auto reply = context.client.list_checkpoints(request);
  if (!reply.ok()) return context.output.failure(reply.status());
  std::vector<std::string> ids;
  Table table = {{"CHECKPOINT", "STEP", "TRAIN LOSS", "HELD-OUT LOSS", "LAMBDA", "BRANCH", "SIZE",
                  "", "CREATED"}};
  for (const auto& each : reply->checkpoints()) {
    ids.push_back(each.id());
    table.push_back({each.id(), std::to_string(each.step()),
                     loss_or_none(each.has_train_loss(), each.train_loss()),
                     loss_or_none(each.has_valid_loss(), each.valid_loss()),
                     loss_or_none(each.has_lambda_mean(), each.lambda_mean()), branch_ratio(each),
                     human_bytes(static_cast<double>(each.bytes())), marks(each),
                     local_time(each.create_time())});
  }
  context.output.list(*reply, ids, table, "it has saved none yet");
  if (reply->has_more())
    context.output.note("there are more: dexctl checkpoints list " + job + " --after " +
                        ids.back());
  return kDone;
}

int create(Context& context, const std::string& job) {
  const auto checkpoint = context.client.create_checkpoint(job);
  if (!checkpoint.ok()) return context.output.failure(checkpoint.status());
  context.output.result(
      *checkpoint, checkpoint->id(),
      {{"CHECKPOINT", "STEP", "SHA-256", "CREATED"},
       {checkpoint->id(), std::to_string(checkpoint->step()), checkpoint->sha256().substr(0, 12),
        local_time(checkpoint->create_time())}});
  return kDone;
}

}  // namespace

void add_checkpoints(CLI::App& app, Action& action) {
  auto* noun = app.add_subcommand("checkpoints", "saved states of jobs: list, create");
  noun->require_subcommand(1);

  auto job = std::make_shared<std::string>();
  auto after = std::make_shared<std::string>();
  auto limit = std::make_shared<int>(20);
  auto* verb = add_verb(*noun, "list",
                        "the newest states that a job has saved; the last one, and some while the "
                        "best one, are still on the disk",
                        "dexctl checkpoints list ftjob-01…");
  verb->add_option("job", *job, "job id")->required();
  verb->add_option("--limit", *limit, "how many, 1 to 1000");
  verb->add_option("--after", *after, "those before this one: the id of the last one seen");
  verb->callback([&action, job, limit, after] {
    action = [=](Context& c) { return list(c, *job, *limit, *after); };
  });

  verb = add_verb(*noun, "create",
                  "have a running job save its state now, and wait until it is on the disk",
                  "dexctl checkpoints create ftjob-01…");
  verb->add_option("job", *job, "job id")->required();
  verb->callback([&action, job] { action = [=](Context& c) { return create(c, *job); }; });
}

}  // namespace dex::cli
