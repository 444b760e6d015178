#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "worker/evaluate/prompt_file.h"
#include "worker/evaluate/task.h"

namespace dex::evaluate {

// Answers to instructions, exported for a judge of the user's choice (method.md §9.5); nothing is
// judged here, so there are no metrics. Greedy, at most `max_tokens`; through the chat template
// where the model has one, else as text to continue.
class Instructions final : public Task {
 public:
  struct Options {
    int32_t max_tokens = 512;
    uint64_t seed = 0;
  };
  Instructions(Options options, std::vector<Instruction> instructions);

  [[nodiscard]] std::string name() const override { return "instructions"; }
  [[nodiscard]] std::vector<Metric> metrics() const override { return {}; }
  void run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) override;

  // A file a subject, outputs-LABEL.json, as AlpacaEval reads model outputs: a JSON list of
  // {"instruction", "output", "generator"} ("dataset" where the set has it). For each subject after
  // the first also a blind pair file, pairs-LABEL.json: a list of {"id", "instruction", "a", "b"}
  // where a seeded draw says which of the two is "a"; and apart from it the key,
  // pairs-LABEL.key.json: {"id", "a", "b"} with the labels.
  [[nodiscard]] std::vector<ExportedFile> files() const override;
  // Writes them into `folder`, which is made when missing, and returns the paths. Throws
  // std::runtime_error when the disk refuses.
  std::vector<std::filesystem::path> write(const std::filesystem::path& folder) const;

 private:
  struct Outputs {
    std::string label;
    std::vector<std::string> texts;  // one an instruction
  };
  Options options_;
  std::vector<Instruction> instructions_;
  std::vector<Outputs> outputs_;  // of the subjects that ran to their end
};

}  // namespace dex::evaluate
