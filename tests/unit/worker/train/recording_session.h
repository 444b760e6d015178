#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "worker/train/report.h"

namespace dex::train::testing {

// Keeps what a job reports and answers polls by a script.
class RecordingSession final : public Session {
 public:
  // Called at each poll with the last progress; may return a command.
  std::function<Command(const Progress&)> script;

  void progress(Phase phase, const Progress& progress) override {
    if (phases.empty() || phases.back() != phase) phases.push_back(phase);
    last = progress;
  }
  void event(const Event& event) override { events.push_back(event); }
  void checkpoint(const CheckpointReport& report) override { checkpoints.push_back(report); }
  void end(const Ending& ending) override { endings.push_back(ending); }
  Command poll() override { return script ? script(last) : Command{}; }

  std::vector<nlohmann::json> data(const std::string& type) const {
    std::vector<nlohmann::json> out;
    for (const Event& event : events) {
      if (event.type == type)
        out.push_back(event.data.empty() ? nlohmann::json() : nlohmann::json::parse(event.data));
    }
    return out;
  }
  std::vector<double> numbers(const std::string& type, const std::string& key) const {
    std::vector<double> out;
    for (const auto& each : data(type)) {
      if (!each.contains("lambda"))
        out.push_back(each.at(key).get<double>());  // not the points by layer
    }
    return out;
  }
  bool has_advice(const std::string& topic) const {
    for (const auto& each : data("advice")) {
      if (each.at("topic") == topic) return true;
    }
    return false;
  }

  std::vector<Phase> phases;
  Progress last;
  std::vector<Event> events;
  std::vector<CheckpointReport> checkpoints;
  std::vector<Ending> endings;
};

}  // namespace dex::train::testing
