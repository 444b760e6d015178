#include "worker/agent/engine_set.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "services/base/clock.h"
#include "services/base/signals.h"

namespace dex::agent {

EngineSet::EngineSet(const DataPaths& paths, InferenceMetrics& metrics)
    : paths_(paths), metrics_(metrics) {}

EngineSet::~EngineSet() {
  stop();
}

void EngineSet::add(std::unique_ptr<Engine> engine) {
  engines_.push_back(std::move(engine));
}

void EngineSet::start() {
  for (const auto& engine : engines_) {
    threads_.emplace_back(
        [running = engine.get()](const std::stop_token& stop) { running->run(stop); });
  }
}

void EngineSet::drain(int64_t grace_ms) {
  for (const auto& engine : engines_) engine->refuse_new();
  const base::SystemClock clock;
  const int64_t end = clock.steady_ms() + grace_ms;
  const auto open = [this] {
    size_t sum = 0;
    for (const auto& engine : engines_) sum += engine->open_requests();
    return sum;
  };
  while (open() > 0 && clock.steady_ms() < end) base::wait_for_stop({}, 20);
  if (open() > 0) spdlog::warn("{} generations are cut", open());
}

void EngineSet::stop() {
  for (auto& thread : threads_) thread.request_stop();
  threads_.clear();  // joins
}

Engine* EngineSet::find(const std::string& base) const {
  const auto found =
      std::ranges::find_if(engines_, [&](const auto& engine) { return engine->base() == base; });
  return found == engines_.end() ? nullptr : found->get();
}

std::vector<iv1::EngineStatus> EngineSet::status() const {
  std::vector<iv1::EngineStatus> result;
  for (const auto& engine : engines_) result.push_back(engine->status());
  return result;
}

bool EngineSet::any_serving() const {
  return std::ranges::any_of(engines_, [](const auto& engine) {
    return engine->status().state() == iv1::EngineStatus::STATE_SERVING;
  });
}

bool EngineSet::all_broken() const {
  return !engines_.empty() &&
         std::ranges::all_of(engines_, [](const auto& engine) { return engine->broken(); });
}

void EngineSet::set_desired(
    const google::protobuf::RepeatedPtrField<iv1::DesiredAdapter>& desired) {
  for (const auto& engine : engines_) {
    std::vector<iv1::DesiredAdapter> own;
    for (const auto& adapter : desired) {
      if (adapter.base() != engine->base()) continue;
      const auto path = paths_.absolute(adapter.path());
      if (!path.ok()) {
        spdlog::error("adapter {}: {}", adapter.id(), path.status().message());
        continue;
      }
      own.push_back(adapter);
      own.back().set_path(path->string());
    }
    engine->set_desired(own);
  }
}

void EngineSet::export_load() const {
  double running = 0;
  double waiting = 0;
  double usage = 0;
  double loaded = 0;
  double bytes = 0;
  for (const auto& status : this->status()) {
    running += status.running();
    waiting += status.waiting();
    usage = std::max(usage, status.kv_usage_ratio());
    for (const auto& adapter : status.adapters()) {
      if (adapter.state() != dex::v1::Replica::STATE_LOADED) continue;
      loaded += 1;
      bytes += static_cast<double>(adapter.bytes());
    }
  }
  metrics_.running.Set(running);
  metrics_.waiting.Set(waiting);
  metrics_.kv_usage.Set(usage);
  metrics_.adapters_loaded.Add({{"tier", "device"}}).Set(loaded);
  metrics_.adapter_bytes.Add({{"tier", "device"}}).Set(bytes);

  if (engines_.empty()) return;  // it serves nobody, so no router need know it
  std::vector<VllmMetrics::Engine> figures;
  AdapterUse use;
  for (const auto& engine : engines_) {
    figures.push_back(engine->figures());
    engine->add_adapters(use);
  }
  metrics_.vllm.set(figures, use, static_cast<double>(base::SystemClock().now_ms()) / 1000);
}

}  // namespace dex::agent
