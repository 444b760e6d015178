// dex-worker: the agent on a machine that trains and serves. Flags become AgentOptions here;
// nothing else reads argv or the environment.

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

#include "services/auth/listen_address.h"
#include "services/base/logging.h"
#include "services/base/signals.h"
#include "services/base/version.h"
#include "worker/agent/agent.h"

namespace {

namespace fs = std::filesystem;
using dex::agent::AgentOptions;

// The host's name in the form of an id: [a-z0-9-]{1,32}.
std::string id_of_host(const std::string& host) {
  std::string id;
  for (const char c : host.substr(0, 32)) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    id += letter ? c : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : '-';
  }
  return id.empty() ? "worker" : id;
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

// Trainer and engine lie beside this program unless told otherwise.
std::string beside_this_program(const char* name) {
  std::error_code error;
  const auto self = fs::read_symlink("/proc/self/exe", error);
  return error ? name : (self.parent_path() / name).string();
}

void add_flags(CLI::App& app, AgentOptions& o, std::string& level) {
  app.add_option("--scheduler", o.scheduler, "the scheduler's worker listener, host:port")
      ->required();
  app.add_option("--data-dir", o.data_dir, "shared with the scheduler")->required();
  app.add_option("--models", o.models_file, "allow-list of base models, models.json")->required();
  app.add_option("--serve", o.serve, "base model to serve, may be repeated (default: all)");
  app.add_flag("--no-serve", o.serve_nothing, "run no engine");
  app.add_option("--pools", o.pools, "resource classes to train for (default: cpu)")
      ->delimiter(',');
  app.add_option("--slots", o.slots, "jobs at a time")->check(CLI::Range(1, 64));
  app.add_option("--ranks", o.ranks,
                 "trainers that compute each fine-tuning job together: threads are shared, memory "
                 "is needed by each, losses are those of one trainer")
      ->check(CLI::Range(1, 64));
  const auto once = app.add_flag(
      "--once", o.once, "end by itself after one job a slot: for machines that are started for it");
  app.add_option("--once-idle-ms", o.once_idle_ms,
                 "with --once: end too when no job came for so long (60000)")
      ->needs(once)
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", o.threads,
                 "compute threads of a trainer and of an engine, 0 = cores");
  app.add_option("--serve-dtype", o.serve_dtype,
                 "bf16, f32, int8 (weights only, a scale an output channel) or int4 (a scale and a "
                 "minimum for 32 weights); default: as stored")
      ->check(CLI::IsMember({"bf16", "f32", "int8", "int4"}));
  app.add_option("--trainer-nice", o.trainer_niceness, "niceness of trainers")
      ->check(CLI::Range(0, 19));
  app.add_option("--listen", o.listen, "inference address");
  app.add_option("--advertise", o.advertise, "inference address that gateways dial");
  app.add_option("--metrics-listen", o.metrics_listen, "/metrics, /healthz, /readyz");
  app.add_option_function<std::string>(
         "--metrics-compat", [&o](const std::string&) { o.vllm_metrics = true; },
         "vllm: export vLLM's names too, for routers that know them")
      ->check(CLI::IsMember({"vllm"}));
  app.add_option("--endpoints-file", o.endpoints_file, "written once it listens");
  app.add_option("--worker-id", o.worker_id, "[a-z0-9-]{1,32}, kept over restarts (default: host)");
  app.add_option("--trainer", o.trainer_program, "dex-trainer program");
  app.add_option("--engine", o.engine_program, "dex-engine program");
  app.add_option("--lock-dir", o.lock_dir,
                 "where locks of devices lie (default: DIR/locks for slots of a CPU)");
  app.add_option(
      "--beat-ms", o.beat_ms,
      "time between heartbeats (default: the scheduler's; at most a third of its lease)");
  app.add_option("--stop-grace-ms", o.stop_grace_ms, "for a trainer's last checkpoint");
  app.add_option("--kill-grace-ms", o.kill_grace_ms, "between SIGTERM and SIGKILL");
  app.add_option("--inference-grace-ms", o.inference_grace_ms, "for open generations");
  app.add_option_function<int64_t>(
         "--orphan-limit-ms", [&o](const int64_t& ms) { o.orphan_limit_ms = ms; },
         "stop a trainer, with a checkpoint, after so long without an answer of the scheduler, "
         "0 = never (default: 12 of the scheduler's leases)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--min-free-bytes", o.min_free_bytes, "claim nothing with less free disk");
  app.add_option("--prefix-cache-bytes", o.prefix_cache_bytes,
                 "bound of DIR/cache/prefix, what frozen layers of jobs compute (default: 4 GiB; "
                 "0: nothing is kept, and every pass over the rows computes it again)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--log-level", level, "trace, debug, info, warn, error, off");
}

dex::base::Status run(const AgentOptions& options, const std::string& level) {
  DEX_RETURN_IF_ERROR(dex::base::init_logging({.component = "worker", .level = level, .file = {}}));
  DEX_RETURN_IF_ERROR(dex::auth::check_listen_address("--listen", options.listen));
  dex::base::StopSignals signals;
  return dex::agent::run_agent(options, signals);
}

}  // namespace

int main(int argc, char** argv) {
  AgentOptions options;
  std::string level = "info";
  CLI::App app("dex-worker: claims and trains jobs, serves models");
  app.set_version_flag("--version", std::string(dex::base::version()));
  add_flags(app, options, level);
  CLI11_PARSE(app, argc, argv);
  // For trainer and engine, which inherit it: OpenMP's threads that spin at every barrier take the
  // time that their own siblings need as soon as anything else runs (beside a build: half of the
  // tokens/s). An operator's own value stays.
  setenv("OMP_WAIT_POLICY", "PASSIVE", 0);
  options.data_dir = fs::absolute(options.data_dir).lexically_normal();
  options.models_file = fs::absolute(options.models_file).lexically_normal();
  options.host = host_name();
  if (options.worker_id.empty()) options.worker_id = id_of_host(options.host);
  if (options.trainer_program.empty()) options.trainer_program = beside_this_program("dex-trainer");
  if (options.engine_program.empty()) options.engine_program = beside_this_program("dex-engine");
  const auto status = run(options, level);
  if (status.ok()) return 0;
  std::fprintf(stderr, "dex-worker: %s\n", status.message().c_str());
  return 1;
}
