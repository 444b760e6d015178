#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "services/base/signals.h"
#include "services/base/status.h"

namespace dex::agent {

struct AgentOptions {
  std::string scheduler;                  // its worker listener, host:port
  std::filesystem::path data_dir;         // shared with the scheduler
  std::filesystem::path models_file;      // the allow-list, models.json
  std::vector<std::string> serve;         // base models to serve; empty: all of the list
  bool serve_nothing = false;             // no engine: training only
  std::vector<std::string> pools{"cpu"};  // what its slots claim; empty: no training
  uint32_t slots = 1;
  uint32_t ranks = 1;                  // trainers that share each fine-tuning job's updates
  bool once = false;                   // ends by itself: after one job a slot, or when none came
  int64_t once_idle_ms = 60'000;       // how long a slot then waits for its job
  uint32_t threads = 0;                // of a trainer, of an engine; 0: all cores
  std::string serve_dtype;             // of engines: bf16, f32, int8, int4; empty: as stored
  int trainer_niceness = 5;            // tokens for people come before steps
  std::string listen = "127.0.0.1:0";  // InferenceService
  std::string advertise;               // what others dial; empty: the address listened on
  std::string metrics_listen = "127.0.0.1:0";
  bool vllm_metrics = false;             // export vLLM's names too (vllm_metrics.h)
  std::filesystem::path endpoints_file;  // {"grpc", "metrics"}, written once it listens
  std::string worker_id;                 // [a-z0-9-]{1,32}, the same after a restart
  std::string host;
  std::string trainer_program;
  std::string engine_program;
  std::filesystem::path lock_dir;   // empty: as device_lock.h says
  int64_t beat_ms = 0;              // 0: as the scheduler says
  int64_t stop_grace_ms = 300'000;  // for a trainer's last checkpoint
  int64_t kill_grace_ms = 10'000;
  int64_t inference_grace_ms = 30'000;            // for open generations when draining
  std::optional<int64_t> orphan_limit_ms;         // as Attempt::Options has it
  int64_t min_free_bytes = 256 << 20;             // less: no claim
  int64_t prefix_cache_bytes = int64_t{4} << 30;  // of DIR/cache/prefix; 0: none
};

// The whole worker: engines, inference door, heartbeat and slots. Blocks until a stop signal, or
// with `once` until every slot has had its one job or has waited once_idle_ms for one in vain, then
// drains: health and /readyz say so at once, running trainers write a checkpoint and their jobs are
// given back, open generations end or are cut at the grace. Fails when it cannot start, and when
// none of the models that it serves can be loaded (then it stops as after a signal).
base::Status run_agent(const AgentOptions& options, base::StopSignals& signals);

}  // namespace dex::agent
