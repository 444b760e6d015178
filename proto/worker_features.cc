#include "proto/worker_features.h"

#include "proto/task_files.h"

namespace dex::proto {

namespace {

bool reads_shipped_text(const dex::v1::EvaluationTask& task) {
  if (needs_file(task)) return false;
  const auto files = task_files(task);
  return !files.empty() && files.front().file.empty();
}

}  // namespace

const std::vector<std::string>& worker_features() {
  static const std::vector<std::string> all = {kShippedText};
  return all;
}

std::string needed_feature(const dex::v1::EvaluationSpec& spec) {
  for (const auto& task : spec.tasks()) {
    if (reads_shipped_text(task)) return kShippedText;
  }
  return "";
}

std::string needed_feature(const dex::v1::FineTuningJobSpec& spec) {
  for (const auto& gate : spec.gates()) {
    if (gate.has_evaluation() && reads_shipped_text(gate.evaluation())) return kShippedText;
  }
  return "";
}

std::string model_and_feature(const std::string& model, const std::string& feature) {
  return feature.empty() ? model : model + "+" + feature;
}

bool is_plain_model(const std::string& word) {
  return word.find('+') == std::string::npos;
}

}  // namespace dex::proto
