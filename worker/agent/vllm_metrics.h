#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "services/monitor/registry.h"

namespace dex::agent {

// Adapters that open requests of a worker ask for, by id: those that get tokens, and those without
// one yet, because it waits for its place, its adapter or its prompt. One may be in both.
struct AdapterUse {
  std::set<std::string> running;
  std::set<std::string> waiting;
};

// What routers that know vLLM read of a worker (api.md §7): names and labels are vLLM's, not ours.
// `vllm:lora_requests_info` of the Gateway API inference extension is always there, one series a
// worker; the rest only when it is asked for. Not thread-safe: set() before each scrape.
class VllmMetrics {
 public:
  struct Engine {
    std::string base;           // label model_name
    uint32_t most_running = 0;  // sequences, so also different adapters, in a batch; 0: not serving
    uint32_t running = 0;
    uint32_t waiting = 0;
    double kv_usage_ratio = 0;
    uint32_t kv_block_tokens = 0;
    int64_t kv_blocks = 0;
  };

  // `whole`: --metrics-compat=vllm. The registry outlives this object.
  VllmMetrics(monitor::Registry& registry, bool whole);

  // `unix_seconds` is the value of lora_requests_info: a reader takes the newest series.
  void set(const std::vector<Engine>& engines, const AdapterUse& use, double unix_seconds);

 private:
  // A family whose samples are in their labels: what they said before is gone after the next one.
  class Info {
   public:
    Info(monitor::Registry& registry, const char* name, const char* help)
        : family_(registry.gauges(name, help)) {}
    void replace(const std::vector<monitor::Labels>& series, double value);

   private:
    prometheus::Family<prometheus::Gauge>& family_;
    std::map<monitor::Labels, prometheus::Gauge*> shown_;
  };
  struct Compat {
    explicit Compat(monitor::Registry& registry);
    void set(const std::vector<Engine>& engines);

    prometheus::Family<prometheus::Gauge>& running;
    prometheus::Family<prometheus::Gauge>& waiting;
    prometheus::Family<prometheus::Gauge>& kv_usage;
    Info cache;
  };

  Info lora_;
  std::vector<Compat> compat_;  // one, or none
};

}  // namespace dex::agent
