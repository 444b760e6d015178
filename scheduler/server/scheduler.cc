#include "scheduler/server/scheduler.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "scheduler/server/adapter_rpc.h"
#include "scheduler/server/admin_rpc.h"
#include "scheduler/server/evaluation_rpc.h"
#include "scheduler/server/janitor.h"
#include "scheduler/server/metrics.h"
#include "scheduler/server/retention.h"
#include "scheduler/server/rpc_services.h"
#include "scheduler/server/start_estimates.h"
#include "scheduler/server/sweeper.h"
#include "services/base/clock.h"
#include "services/base/files.h"
#include "services/base/version.h"
#include "services/monitor/monitor_server.h"
#include "services/rpc/live_call.h"
#include "services/rpc/server.h"

namespace dex::server {

namespace {

store::Store::Options store_options(const SchedulerOptions& options, Metrics& metrics) {
  store::Store::Options result;
  result.redis.address = options.redis;
  result.redis.connections = 24;
  result.redis.patience = options.store_patience;
  result.redis.observe = [&metrics](std::string_view name, double seconds, std::string_view error) {
    metrics.redis_call(name, seconds, error);
  };
  result.times = options.times;
  return result;
}

rpc::Room::Options gateway_room() {
  rpc::Room::Options options;
  options.behind_gateway = true;
  return options;
}

rpc::Room::Options worker_room() {
  rpc::Room::Options options;
  options.unary = {4, 1024, "worker-rpc"};
  options.streams = {1, 1, "worker-stream"};  // this door has no streams
  options.transfers = {1, 1, "worker-transfer"};
  return options;
}

}  // namespace

struct Scheduler::Parts {
  Parts(const SchedulerOptions& options, ModelCatalog catalog)
      : options(options),
        catalog(std::move(catalog)),
        registry("scheduler", std::string(base::version()), std::string(base::commit())),
        metrics(registry),
        ids(clock, random),
        store(store_options(options, metrics)),
        layout(options.data_dir),
        room(gateway_room()),
        workers_room(worker_room()) {}

  void changed() {
    claims.wake();
    watches.wake();
  }
  // Before the doors open, so that the first routes a gateway gets have it; if the store does not
  // answer yet, once it does.
  void ensure_admin_key() {
    if (options.admin_key.empty()) return;
    const auto done = [this] {
      const auto status = key_logic.ensure_admin(options.admin_key);
      if (status.code() == base::Code::kUnavailable) return false;
      if (!status.ok())
        spdlog::warn("the operator's key is of no use: {}; remove its file and start anew",
                     status.message());
      return true;
    };
    if (!done()) watches.add(done);
  }
  // Asked by RPCs only, which come when everything is made.
  [[nodiscard]] base::Status health() const { return sweeper->health(); }
  // Whoever sends work here should look elsewhere from the first moment of a drain.
  [[nodiscard]] base::Status ready() const {
    return room.draining() ? rpc::server_draining() : health();
  }

  const SchedulerOptions options;
  const ModelCatalog catalog;
  base::SystemClock clock;
  base::SystemRandom random;
  monitor::Registry registry;
  Metrics metrics;
  base::UlidGenerator ids;
  store::Store store;
  store::JobRepository jobs{store};
  store::FileRepository files{store};
  store::AdapterRepository adapters{store};
  store::AliasRepository aliases{store};
  store::WorkerRepository workers{store};
  store::OperatorRepository operators{store};
  store::KeyRepository keys{store};
  store::UsageRepository use_records{store};
  DataLayout layout;
  BlobStore blobs{layout, files};
  JobEvents job_events{jobs, layout};
  std::function<void()> on_change = [this] { changed(); };
  std::function<base::Status()> durable = [this] { return health(); };

  rpc::Room room;  // of the gateways' door
  rpc::Room workers_room;

  StartEstimates start_estimates{{operators, jobs, clock}};
  FineTuningJobs job_logic{
      {store, jobs, files, adapters, workers, job_events, catalog, layout, metrics, ids, random},
      {"cpu", options.device, on_change, durable,
       [this](const store::JobRecord& job, const std::string& base_model) {
         return start_estimates.of(job, base_model);
       }}};
  JobBatches batch_logic{{job_logic, store, jobs, metrics, ids}, {on_change, durable}};
  JobChanges change_logic{{store, jobs, adapters, layout, ids}, on_change};
  Evaluations evaluation_logic{{store, jobs, files, adapters, catalog, layout, metrics, ids},
                               {"cpu", on_change, durable}};
  HeadPreviews preview_logic{{jobs, files, catalog, layout, metrics, ids}, {"cpu", on_change}};
  MemoryProbes probe_logic{{job_logic, jobs, metrics, ids}, {on_change}};
  ResultFiles result_files{jobs, job_events};
  Files file_logic{files, blobs, layout, ids, result_files, {}};
  ModelTexts model_texts{catalog};
  FileChecks file_check_logic{{files, blobs, catalog, model_texts}};
  Adapters adapter_logic{adapters, aliases, workers, layout, ids, on_change};
  Aliases alias_logic{{store, aliases, adapters, adapter_logic, catalog, ids}, on_change};
  AdapterJobs adapter_job_logic{{jobs, adapters, catalog, layout, metrics, ids},
                                {"cpu", on_change, durable}};
  Models model_logic{catalog, workers, options.device.prices};
  Workers worker_logic{
      {store, jobs, files, adapters, workers, layout, metrics, random, catalog, clock},
      {options.beat_ms, on_change}};

  Diagnosis diagnosis{{store, workers, catalog, layout, clock}};
  Operations operations{{operators, ids}, on_change};
  ApiKeys key_logic{{keys, ids, random, clock}, on_change};
  Usage usage_logic{use_records};

  // Long polls look once a second for jobs of other replicas (jobs.md §4), watches more often.
  Waiters claims{std::chrono::seconds(1)};
  Waiters watches{std::chrono::milliseconds(options.watch_ms)};
  JobWatches job_watches{jobs, job_events, watches};
  Routes route_logic{workers, catalog, watches};

  FineTuningRpc job_rpc{room,        job_logic,     batch_logic, change_logic,
                        job_watches, preview_logic, probe_logic, watches};
  AdminRpc admin_rpc{room, change_logic, diagnosis, operations, key_logic, usage_logic};
  EvaluationRpc evaluation_rpc{room, evaluation_logic, job_watches};
  FileRpc file_rpc{room, file_logic, file_check_logic};
  AdapterRpc adapter_rpc{room, adapter_logic, alias_logic, adapter_job_logic, route_logic, watches};
  ModelRpc model_rpc{room, model_logic};
  RouteRpc route_rpc{room, route_logic, key_logic, usage_logic};
  WorkerRpc worker_rpc{workers_room, worker_logic, claims};

  std::unique_ptr<Sweeper> sweeper;
  std::unique_ptr<Janitor> janitor;
  std::unique_ptr<Retention> retention;
  std::unique_ptr<rpc::Server> server;
  std::unique_ptr<rpc::Server> worker_server;
  std::unique_ptr<monitor::HttpServer> monitor;
};

Scheduler::Scheduler(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Scheduler::~Scheduler() {
  stop();
}

base::Result<std::unique_ptr<Scheduler>> Scheduler::start(const SchedulerOptions& options) {
  DEX_ASSIGN_OR_RETURN(auto catalog, ModelCatalog::load(options.models_file));
  auto made = std::make_unique<Parts>(options, std::move(catalog));
  Parts& parts = *made;
  std::unique_ptr<Scheduler> scheduler(new Scheduler(std::move(made)));
  DEX_RETURN_IF_ERROR(parts.layout.prepare());
  Sweeper::Options sweeper;
  sweeper.sweep_ms = options.sweep_ms;
  sweeper.changed = parts.on_change;
  parts.sweeper = std::make_unique<Sweeper>(parts.store, parts.metrics, parts.clock, sweeper);
  parts.janitor = std::make_unique<Janitor>(
      Janitor::Parts{parts.blobs, parts.files, parts.jobs, parts.layout, parts.clock},
      Janitor::Options{});
  Retention::Options retention;
  retention.keep_ms = options.retention_ms;
  retention.archive_after_ms = options.archive_after_ms;
  retention.period_ms = std::clamp<int64_t>(options.archive_after_ms / 2, 100, 30'000);
  parts.retention = std::make_unique<Retention>(
      Retention::Parts{parts.jobs, parts.adapters, parts.job_events, parts.layout, parts.clock},
      retention);

  parts.ensure_admin_key();
  rpc::Server::Options door;
  door.address = options.listen;
  door.services = {{v1::FineTuningService::service_full_name(), &parts.job_rpc},
                   {v1::EvaluationService::service_full_name(), &parts.evaluation_rpc},
                   {v1::FileService::service_full_name(), &parts.file_rpc},
                   {v1::AdapterService::service_full_name(), &parts.adapter_rpc},
                   {v1::ModelService::service_full_name(), &parts.model_rpc},
                   {v1::AdminService::service_full_name(), &parts.admin_rpc},
                   {iv1::RouteService::service_full_name(), &parts.route_rpc}};
  DEX_ASSIGN_OR_RETURN(parts.server, rpc::Server::start(door, parts.room, parts.registry));
  rpc::Server::Options worker_door;
  worker_door.address = options.worker_listen;
  worker_door.services = {{iv1::WorkerService::service_full_name(), &parts.worker_rpc}};
  DEX_ASSIGN_OR_RETURN(parts.worker_server,
                       rpc::Server::start(worker_door, parts.workers_room, parts.registry));
  DEX_ASSIGN_OR_RETURN(parts.monitor,
                       monitor::start_monitor_server(options.metrics_listen, parts.registry,
                                                     [&parts] { return parts.ready(); }));

  if (!options.endpoints_file.empty()) {
    const nlohmann::json endpoints = {{"grpc", scheduler->grpc_address()},
                                      {"worker", scheduler->worker_address()},
                                      {"metrics", scheduler->metrics_address()}};
    DEX_RETURN_IF_ERROR(base::make_directories(options.endpoints_file.parent_path(), 0755));
    DEX_RETURN_IF_ERROR(
        base::write_file_atomically(options.endpoints_file, endpoints.dump() + "\n"));
  }
  spdlog::info("listens on {} for gateways, {} for workers, {} for metrics; {} base models",
               scheduler->grpc_address(), scheduler->worker_address(), scheduler->metrics_address(),
               parts.catalog.models().size());
  return scheduler;
}

const std::string& Scheduler::grpc_address() const {
  return parts_->server->address();
}
const std::string& Scheduler::worker_address() const {
  return parts_->worker_server->address();
}
std::string Scheduler::metrics_address() const {
  return parts_->monitor->address();
}
base::Status Scheduler::ready() const {
  return parts_->ready();
}

void Scheduler::stop(std::chrono::milliseconds grace) {
  Parts& parts = *parts_;
  {
    // Both doors at once: one grace, not two. Beats and finishes under way still end.
    const std::jthread workers([&] {
      if (parts.worker_server) parts.worker_server->stop(grace);
    });
    if (parts.server) parts.server->stop(grace);
  }
  if (parts.sweeper) parts.sweeper->request_stop();
  if (parts.janitor) parts.janitor->request_stop();
  if (parts.retention) parts.retention->request_stop();
  parts.store.close();  // nobody needs an answer any more: waits for a dead store end at once
  // A crowd of watches that came just before may still be queued; they use what goes next.
  parts.room.close();
  parts.workers_room.close();
  parts.claims.close();
  parts.watches.close();
  if (parts.sweeper) parts.sweeper->stop();
  if (parts.janitor) parts.janitor->stop();
  if (parts.retention) parts.retention->stop();
  parts.monitor.reset();
}

}  // namespace dex::server
