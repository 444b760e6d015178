#include "worker/agent/vllm_metrics.h"

namespace dex::agent {

namespace {

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

}  // namespace

void VllmMetrics::Info::replace(const std::vector<monitor::Labels>& series, double value) {
  std::map<monitor::Labels, prometheus::Gauge*> shown;
  for (const auto& labels : series) {
    prometheus::Gauge& gauge = family_.Add(labels);
    gauge.Set(value);
    shown[labels] = &gauge;
  }
  // The new ones are there first: a scrape beside this one never sees none.
  for (const auto& [labels, gauge] : shown_) {
    if (!shown.contains(labels)) family_.Remove(gauge);
  }
  shown_ = std::move(shown);
}

VllmMetrics::Compat::Compat(monitor::Registry& r)
    : running(r.gauges("vllm:num_requests_running", "Requests in the engine's batch")),
      waiting(r.gauges("vllm:num_requests_waiting", "Requests waiting for a place in the batch")),
      kv_usage(r.gauges("vllm:kv_cache_usage_perc", "Used share of the KV cache, 0 to 1")),
      cache(r, "vllm:cache_config_info", "Always 1; its labels say what the KV cache is") {}

void VllmMetrics::Compat::set(const std::vector<Engine>& engines) {
  std::vector<monitor::Labels> caches;
  for (const Engine& engine : engines) {
    const monitor::Labels labels = {{"model_name", engine.base}};
    running.Add(labels).Set(engine.running);
    waiting.Add(labels).Set(engine.waiting);
    kv_usage.Add(labels).Set(engine.kv_usage_ratio);
    if (engine.kv_blocks == 0) continue;  // it has not said yet
    caches.push_back({{"model_name", engine.base},
                      {"block_size", std::to_string(engine.kv_block_tokens)},
                      {"num_gpu_blocks", std::to_string(engine.kv_blocks)}});
  }
  cache.replace(caches, 1);
}

VllmMetrics::VllmMetrics(monitor::Registry& registry, bool whole)
    : lora_(registry, "vllm:lora_requests_info",
            "Unix time; its labels say which adapters requests are for, as vLLM has it") {
  if (whole) compat_.emplace_back(registry);
}

void VllmMetrics::set(const std::vector<Engine>& engines, const AdapterUse& use,
                      double unix_seconds) {
  uint32_t slots = 0;
  for (const Engine& engine : engines) slots += engine.most_running;
  lora_.replace({{{"max_lora", std::to_string(slots)},
                  {"running_lora_adapters", joined(use.running)},
                  {"waiting_lora_adapters", joined(use.waiting)}}},
                unix_seconds);
  for (Compat& compat : compat_) compat.set(engines);
}

}  // namespace dex::agent
