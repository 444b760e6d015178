#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "worker/agent/data_paths.h"
#include "worker/agent/engine.h"

namespace dex::agent {

// The engines of a worker, one a served base model, each with its thread. Thread-safe.
class EngineSet {
 public:
  // paths and metrics outlive this object.
  EngineSet(const DataPaths& paths, InferenceMetrics& metrics);
  ~EngineSet();  // as stop()

  // All engines are added before anything else is called, from one thread.
  void add(std::unique_ptr<Engine> engine);
  void start();
  // New requests are refused; waits until the open ones have ended, at most grace_ms.
  void drain(int64_t grace_ms);
  // Ends the engines and waits for them.
  void stop();

  [[nodiscard]] Engine* find(const std::string& base) const;  // null: not served here
  [[nodiscard]] std::vector<iv1::EngineStatus> status() const;
  [[nodiscard]] bool any_serving() const;
  // There are engines, and none of their models can be loaded.
  [[nodiscard]] bool all_broken() const;
  void set_desired(const google::protobuf::RepeatedPtrField<iv1::DesiredAdapter>& desired);
  // Brings the gauges up to date; before each scrape.
  void export_load() const;

 private:
  const DataPaths& paths_;
  InferenceMetrics& metrics_;
  std::vector<std::unique_ptr<Engine>> engines_;  // fixed after the last add()
  std::vector<std::jthread> threads_;
};

}  // namespace dex::agent
