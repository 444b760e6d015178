// `dexctl queue`, `workers`, `quota`: what operators see and say.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/job_view.h"
#include "client/cli/progress_view.h"

namespace dex::cli {

namespace {

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string joined(const google::protobuf::RepeatedPtrField<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string seconds_or_none(double seconds) {
  return seconds > 0 ? short_number(seconds) + " s" : "no limit";
}

// ---- queue ----

Table queue_table(const v1::Queue::Pool& pool) {
  Table table = {{"#", "JOB", "KIND", "PRIORITY", "WAITS", "FOR"}};
  for (const auto& entry : pool.order()) {
    const std::string reason = waiting_text(entry.reason());  // " (for a worker)"
    table.push_back({std::to_string(entry.position()),
                     entry.job().empty() ? "(another tenant's)" : entry.job(), entry.kind(),
                     std::to_string(entry.priority()), human_seconds(entry.waiting_seconds()),
                     reason.size() > 3 ? reason.substr(2, reason.size() - 3) : reason});
  }
  return table;
}

int show_queue(Context& context, const std::string& pool, int count) {
  const auto queue = context.client.queue(pool, count);
  if (!queue.ok()) return context.output.failure(queue.status());
  std::vector<std::string> ids;
  for (const auto& each : queue->pools()) {
    for (const auto& entry : each.order()) {
      if (!entry.job().empty()) ids.push_back(entry.job());
    }
  }
  if (context.output.format() != Format::kTable) {
    context.output.list(*queue, ids, {}, "nothing waits");
    return kDone;
  }
  for (const auto& each : queue->pools()) {
    context.output.note("pool " + each.name() + ": " + std::to_string(each.waiting()) +
                        " waiting, the longest of those that are next for " +
                        human_seconds(each.oldest_wait_seconds()) + "; " +
                        std::to_string(each.running()) +
                        " running; workers that take jobs: " + std::to_string(each.workers()));
    if (each.order_size() > 0)
      context.output.out() << render(queue_table(each), context.output.terminal());
  }
  return kDone;
}

// ---- workers ----

Table worker_table(const std::vector<v1::Worker>& workers) {
  Table table = {{"ID", "HOST", "STATE", "POOLS", "RUNNING", "JOBS OF YOURS", "ADAPTERS",
                  "HEARTBEAT", "VERSION"}};
  for (const auto& worker : workers) {
    table.push_back({worker.id(), worker.host(),
                     worker.state() == v1::Worker::STATE_UP ? "up" : "draining",
                     joined(worker.pools()),
                     std::to_string(worker.running()) + " of " + std::to_string(worker.slots()),
                     joined(worker.jobs()), std::to_string(worker.adapters_loaded()),
                     human_seconds(worker.heartbeat_age_seconds()) + " ago", worker.version()});
  }
  return table;
}

int list_workers(Context& context) {
  const auto reply = context.client.list_workers();
  if (!reply.ok()) return context.output.failure(reply.status());
  std::vector<std::string> ids;
  for (const auto& worker : reply->workers()) ids.push_back(worker.id());
  context.output.list(*reply, ids, worker_table({reply->workers().begin(), reply->workers().end()}),
                      "no worker is there: jobs wait until one comes");
  return kDone;
}

int drain_worker(Context& context, const std::string& id, bool draining) {
  const auto worker = context.client.update_worker(id, draining);
  if (!worker.ok()) return context.output.failure(worker.status());
  if (draining && worker->running() > 0) {
    context.output.note("it gets no new jobs and ends those that it runs: " +
                        std::to_string(worker->running()));
  }
  context.output.result(*worker, worker->id(), worker_table({*worker}));
  return kDone;
}

// ---- quota ----

int show_quota(Context& context, const base::Result<v1::Quota>& quota) {
  if (!quota.ok()) return context.output.failure(quota.status());
  context.output.result(
      *quota, quota->tenant(),
      {{"TENANT", "WEIGHT", "QUEUED", "RUNNING", "DEVICE SECONDS TODAY", "ETAG"},
       {quota->tenant(), short_number(quota->weight()),
        std::to_string(quota->queued()) + " of " + std::to_string(quota->max_queued()),
        std::to_string(quota->running()) + " of " + std::to_string(quota->max_running()),
        short_number(quota->device_seconds_today()) + " s of " +
            seconds_or_none(quota->device_seconds_per_day()),
        quota->etag()}});
  return kDone;
}

struct QuotaFlags {
  std::string tenant, etag;
  double weight = 0, seconds_per_day = 0;
  uint32_t max_queued = 0, max_running = 0;
};

void add_quota_set(CLI::App& quota, Action& action) {
  auto* verb =
      add_verb(quota, "set",
               "what a tenant may have from now on; what is left out stays. Lower limits "
               "stop nothing that runs",
               "dexctl quota set --max-running 4\n"
               "dexctl quota set team-a --weight 2 --max-queued 100 --device-seconds-per-day "
               "86400 --etag 3");
  auto flags = std::make_shared<QuotaFlags>();
  verb->add_option("tenant", flags->tenant, "default: yours");
  auto* weight = verb->add_option("--weight", flags->weight,
                                  "its share of the workers' time beside others (1)");
  auto* queued = verb->add_option("--max-queued", flags->max_queued, "jobs that wait (20)");
  auto* running = verb->add_option("--max-running", flags->max_running, "jobs that run (2)");
  auto* seconds = verb->add_option("--device-seconds-per-day", flags->seconds_per_day,
                                   "of one device, in a UTC day; 0: no limit");
  verb->add_option("--etag", flags->etag, "refuse if it is not this any more (dexctl quota get)");
  verb->callback([&action, flags, weight, queued, running, seconds] {
    v1::SetQuotaRequest request;
    request.set_tenant(flags->tenant);
    request.set_etag(flags->etag);
    if (weight->count() > 0) request.set_weight(flags->weight);
    if (queued->count() > 0) request.set_max_queued(flags->max_queued);
    if (running->count() > 0) request.set_max_running(flags->max_running);
    if (seconds->count() > 0) request.set_device_seconds_per_day(flags->seconds_per_day);
    action = [request](Context& c) { return show_quota(c, c.client.set_quota(request)); };
  });
}

void add_quota(CLI::App& app, Action& action) {
  auto* quota =
      app.add_subcommand("quota", "what a tenant may have at once and a day, and what it has");
  quota->require_subcommand(1);
  auto* get = add_verb(*quota, "get", "the limits of a tenant and what of them is used",
                       "dexctl quota get\ndexctl quota get team-a");
  auto tenant = std::make_shared<std::string>();
  get->add_option("tenant", *tenant, "default: yours");
  get->callback([&action, tenant] {
    action = [tenant](Context& c) { return show_quota(c, c.client.quota(*tenant)); };
  });
  add_quota_set(*quota, action);
}

void add_workers(CLI::App& app, Action& action) {
  auto* workers = app.add_subcommand("workers", "the machines that train, evaluate and serve");
  workers->require_subcommand(1);
  add_verb(*workers, "list", "those that are there", "dexctl workers list")->callback([&action] {
    action = list_workers;
  });
  auto* drain =
      add_verb(*workers, "drain",
               "take one out of service: it gets no new jobs and ends those that it runs; "
               "holds over a restart of it",
               "dexctl workers drain gpu-3\ndexctl workers drain gpu-3 --undo");
  auto id = std::make_shared<std::string>();
  auto undo = std::make_shared<bool>(false);
  drain->add_option("id", *id, "of dexctl workers list")->required();
  drain->add_flag("--undo", *undo, "back into service");
  drain->callback([&action, id, undo] {
    action = [id, undo](Context& c) { return drain_worker(c, *id, !*undo); };
  });
}

void add_queue(CLI::App& app, Action& action) {
  auto* queue = add_verb(app, "queue", "what waits, by pool, and for what",
                         "dexctl queue\ndexctl queue --pool gpu1 --count 100");
  auto pool = std::make_shared<std::string>();
  auto count = std::make_shared<int>(0);
  queue->add_option("--pool", *pool, "only this one");
  queue->add_option("--count", *count, "jobs shown a pool (20, at most 100)")
      ->check(CLI::Range(1, 100));
  queue->callback([&action, pool, count] {
    action = [pool, count](Context& c) { return show_queue(c, *pool, *count); };
  });
}

}  // namespace

void add_operations(CLI::App& app, Action& action) {
  add_queue(app, action);
  add_workers(app, action);
  add_quota(app, action);
}

}  // namespace dex::cli
