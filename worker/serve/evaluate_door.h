#pragma once

#include <CLI/CLI.hpp>

#include "worker/serve/evaluate_command.h"

namespace dex::serve {

// The command line of `dex-engine evaluate`: adds the subcommand with one of its own for each task,
// and runs what was parsed.
class EvaluateDoor {
 public:
  explicit EvaluateDoor(CLI::App& app);  // outlives this object
  EvaluateDoor(const EvaluateDoor&) = delete;
  EvaluateDoor& operator=(const EvaluateDoor&) = delete;

  [[nodiscard]] bool parsed() const { return evaluate_->parsed(); }
  // After parsed(): the process's exit code. Call it before any thread is started.
  int run();

 private:
  CLI::App* add_task(const char* name, const char* help);
  void add_perplexity();
  void add_multi_needle();
  void add_multiple_choice();
  void add_icl();
  void add_answers();
  void add_head_analysis();
  void add_instructions();
  void add_format(CLI::App& task);
  void add_samples(CLI::App& task, const char* help);

  EvaluateCommand command_;
  CLI::App* evaluate_;
};

}  // namespace dex::serve
