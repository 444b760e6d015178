#include "worker/agent/agent.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "services/base/files.h"
#include "services/base/version.h"
#include "services/monitor/monitor_server.h"
#include "services/rpc/live_call.h"
#include "services/rpc/server.h"
#include "worker/agent/device_lock.h"
#include "worker/agent/engine_set.h"
#include "worker/agent/heartbeat.h"
#include "worker/agent/identity.h"
#include "worker/agent/inference_service.h"
#include "worker/agent/slot.h"

namespace dex::agent {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kLook_ms = 200;

// The models whose engines this worker runs.
base::Result<std::vector<BaseModelEntry>> served_models(const AgentOptions& options,
                                                        const std::vector<BaseModelEntry>& all) {
  if (options.serve_nothing) return std::vector<BaseModelEntry>{};
  if (options.serve.empty()) return all;
  std::vector<BaseModelEntry> served;
  for (const auto& name : options.serve) {
    const auto* model = find_model(all, name);
    if (model == nullptr) {
      return base::not_found("MODEL_NOT_FOUND", "--serve " + name + ": no such model in " +
                                                    options.models_file.string());
    }
    served.push_back(*model);
  }
  return served;
}

Slot::Options slot_options(const AgentOptions& options, uint32_t index) {
  Slot::Options slot;
  slot.worker_id = options.worker_id;
  slot.index = index;
  slot.pools = options.pools;
  slot.once = options.once;
  slot.once_idle_ms = options.once_idle_ms;
  slot.lock_file =
      device_lock_file(cpu_device(options.worker_id), index, options.data_dir, options.lock_dir);
  slot.attempt.trainer.program = options.trainer_program;
  slot.attempt.trainer.niceness = options.trainer_niceness;
  slot.attempt.evaluator.program = options.engine_program;
  slot.attempt.evaluator.args = {"evaluation"};
  slot.attempt.evaluator.niceness = options.trainer_niceness;
  slot.attempt.threads = options.threads;
  slot.attempt.ranks = options.ranks;
  slot.attempt.prefix_cache_bytes = options.prefix_cache_bytes;
  slot.attempt.stop = {options.stop_grace_ms, options.kill_grace_ms};
  slot.attempt.orphan_limit_ms = options.orphan_limit_ms;
  return slot;
}

void add_engines(const AgentOptions& options, const std::vector<BaseModelEntry>& served,
                 const base::Clock& clock, WorkerMetrics& worker, InferenceMetrics& inference,
                 const std::function<void()>& changed, EngineSet& engines) {
  for (const auto& model : served) {
    Engine::Options engine;
    engine.program = options.engine_program;
    engine.model = model;
    engine.threads = options.threads;
    engine.dtype = options.serve_dtype;
    engine.changed = changed;
    engines.add(std::make_unique<Engine>(std::move(engine), clock, worker, inference));
  }
}

base::Status write_endpoints(const fs::path& file, const rpc::Server& server,
                             const monitor::HttpServer& monitor) {
  if (file.empty()) return {};
  const nlohmann::json endpoints{{"grpc", server.address()}, {"metrics", monitor.address()}};
  return base::write_file_atomically(file, endpoints.dump(2) + "\n", 0600);
}

}  // namespace

base::Status run_agent(const AgentOptions& options, base::StopSignals& signals) {
  DEX_ASSIGN_OR_RETURN(const auto models, read_model_list(options.models_file));
  DEX_ASSIGN_OR_RETURN(const auto served, served_models(options, models));
  const base::SystemClock clock;
  base::SystemRandom random;
  base::UlidGenerator ids(clock, random);
  const DataPaths paths(options.data_dir);
  DEX_RETURN_IF_ERROR(base::make_directories(slot_options(options, 0).lock_file.parent_path()));

  monitor::Registry registry("worker", std::string(base::version()), std::string(base::commit()));
  WorkerMetrics worker_metrics(registry);
  InferenceMetrics inference_metrics(registry, options.vllm_metrics);
  worker_metrics.set_state(options.worker_id, "up");

  EngineSet engines(paths, inference_metrics);
  registry.before_scrape([&engines] { engines.export_load(); });
  // Routes change with an engine: the scheduler hears of it at once, not a beat later.
  Heartbeat* beating = nullptr;  // set before the engines start
  add_engines(
      options, served, clock, worker_metrics, inference_metrics, [&beating] { beating->poke(); },
      engines);

  // Before the engines' service, after the engines: its calls end before they do.
  rpc::Room::Options room_options;
  room_options.transfers.threads = 1;  // nothing is uploaded here, and generations wait for nobody
  rpc::Room room(room_options);
  InferenceService inference(room, engines, paths, ids);
  rpc::Server::Options server_options;
  server_options.address = options.listen;
  server_options.services = {{dex::v1::InferenceService::service_full_name(), &inference}};
  DEX_ASSIGN_OR_RETURN(auto server, rpc::Server::start(server_options, room, registry));

  SchedulerClient client(options.scheduler);
  AttemptList attempts;
  Heartbeat::Options beat;
  beat.identity = identity(options, models, served, server->address());
  beat.data_dir = options.data_dir;
  beat.beat_ms = options.beat_ms;
  Heartbeat heartbeat(std::move(beat), client, attempts,
                      {[&engines] { return engines.status(); },
                       [&engines](const auto& desired) { engines.set_desired(desired); }},
                      worker_metrics, clock);
  beating = &heartbeat;

  const auto ready = [&]() -> base::Status {
    if (signals.token().stop_requested()) return rpc::server_draining();
    if (!heartbeat.registered()) {
      return base::unavailable("STORE_UNAVAILABLE", "not registered with the scheduler yet");
    }
    if (!served.empty() && !engines.any_serving()) {
      return base::unavailable("ENGINE_LOST", "no engine serves yet");
    }
    if (!heartbeat.engines_announced()) {
      return base::unavailable("ENGINE_LOST",
                               "the scheduler does not know yet that the engines serve");
    }
    return {};
  };
  DEX_ASSIGN_OR_RETURN(auto monitor,
                       monitor::start_monitor_server(options.metrics_listen, registry, ready));
  DEX_RETURN_IF_ERROR(write_endpoints(options.endpoints_file, *server, *monitor));
  spdlog::info("worker {} answers on {}, metrics on {}", options.worker_id, server->address(),
               monitor->address());

  // Nothing fails from here on: what starts now is stopped below.
  engines.start();
  DiskGate disk(options.data_dir, options.min_free_bytes);
  std::vector<std::unique_ptr<Slot>> slots;
  std::atomic<uint32_t> slots_left = options.slots;  // outlives the threads of slots
  std::vector<std::jthread> slot_threads;
  std::jthread beats([&heartbeat](const std::stop_token& stop) { heartbeat.run(stop); });
  for (uint32_t i = 0; i < options.slots && !options.pools.empty(); ++i) {
    slots.push_back(std::make_unique<Slot>(slot_options(options, i), client, heartbeat, attempts,
                                           disk, paths, models, worker_metrics, clock, random));
    slot_threads.emplace_back([&, slot = slots.back().get(), drain = signals.token()] {
      slot->run(drain);
      if (--slots_left == 0) signals.request();  // with `once`; else it was asked for already
    });
  }

  // A worker none of whose models can be loaded ends and says so: no restart mends a file.
  bool broken = false;
  while (!signals.wait(kLook_ms)) {
    broken = engines.all_broken();
    if (broken) signals.request();  // the slots wait for it too
  }
  spdlog::info("draining");
  server->set_serving("", false);  // before anything that takes time; its calls go on
  iv1::DrainRequest farewell;
  farewell.set_worker_id(options.worker_id);
  const auto drained = client.drain(farewell);
  if (!drained.ok()) spdlog::warn("the scheduler does not hear the drain: {}", drained.to_string());
  engines.drain(options.inference_grace_ms);  // the trainers write their checkpoints meanwhile
  slot_threads.clear();                       // joins; the heartbeat goes on until then
  server->stop(std::chrono::seconds(2));
  engines.stop();
  beats = {};
  farewell.set_gone(true);
  (void)client.drain(farewell).ok();
  spdlog::info("worker {} is gone", options.worker_id);
  if (!broken) return {};
  return base::failed_precondition(
      "MODEL_BROKEN", "none of the models of " + options.models_file.string() +
                          " can be loaded; the engine's last line says which file is wrong");
}

}  // namespace dex::agent
