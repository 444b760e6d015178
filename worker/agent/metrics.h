#pragma once

#include <string>

#include "services/monitor/registry.h"
#include "worker/agent/vllm_metrics.h"

namespace dex::agent {

// What the agent exports of itself, its trainers and its engines (jobs.md §12). Trainer and engine
// send their figures in frames. References live as long as the registry; thread-safe.
struct WorkerMetrics {
  explicit WorkerMetrics(monitor::Registry& registry);

  prometheus::Family<prometheus::Gauge>&
      state;  // dex_worker_state{worker,state}: 1 for the present
  prometheus::Gauge& heartbeat_timestamp;
  prometheus::Gauge& disk_free_ratio;
  prometheus::Counter& engine_restarts;

  prometheus::Counter& train_tokens;
  prometheus::Histogram& train_step;
  prometheus::Counter& train_nonfinite;
  prometheus::Histogram& checkpoint_write;
  prometheus::Counter& checkpoint_bytes;
  prometheus::Counter& checkpoint_failures;

  // "up", "draining", "out_of_service", "disk_full"
  void set_state(const std::string& worker, const std::string& now);
};

struct InferenceMetrics {
  // `vllm_compat`: all that VllmMetrics can say, not its one gauge alone.
  explicit InferenceMetrics(monitor::Registry& registry, bool vllm_compat = false);

  prometheus::Gauge& running;
  prometheus::Gauge& waiting;
  prometheus::Family<prometheus::Counter>& requests;  // {finished_reason}
  prometheus::Histogram& first_token;
  prometheus::Histogram& inter_token;
  prometheus::Histogram& duration;
  prometheus::Histogram& queue;
  prometheus::Counter& prompt_tokens;
  prometheus::Counter& generation_tokens;
  prometheus::Gauge& kv_usage;
  prometheus::Family<prometheus::Gauge>& adapters_loaded;  // {tier}
  prometheus::Family<prometheus::Gauge>& adapter_bytes;    // {tier}
  prometheus::Histogram& adapter_load;
  prometheus::Counter& adapter_load_failures;
  VllmMetrics vllm;
};

}  // namespace dex::agent
