#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "services/base/clock.h"
#include "services/base/signals.h"
#include "worker/evaluate/answers.h"
#include "worker/evaluate/documents.h"
#include "worker/evaluate/head_analysis.h"
#include "worker/evaluate/in_context.h"
#include "worker/evaluate/instructions.h"
#include "worker/evaluate/multi_needle.h"
#include "worker/evaluate/multiple_choice.h"
#include "worker/evaluate/perplexity.h"

namespace dex::serve {

// `dex-engine evaluate TASK`: which models, which data, how it is shown. The seed and the number of
// samples stand once for all tasks.
struct EvaluateCommand {
  std::string task;  // Task::name()
  std::filesystem::path model;
  std::vector<std::string> adapters;  // folders; "none": the base once more
  std::string dtype;                  // as LocalModel's
  bool against_int8 = false;          // each model beside itself with dtype int8, pair by pair
  int threads = 0;
  std::filesystem::path file;  // multi_needle: empty is the text that comes with it
  uint64_t seed = 0;
  double confidence = 0.95;
  int64_t samples = 0;  // 0: all
  bool chat = false;
  bool allow_extrapolation = false;
  std::filesystem::path samples_out;  // JSON Lines; empty: none
  bool json = false;

  std::string format = "auto";  // perplexity, multi_needle, head_analysis: of the file
  evaluate::Perplexity::Options perplexity;
  evaluate::MultiNeedle::Options multi_needle;
  evaluate::MultipleChoice::Options multiple_choice;
  std::filesystem::path shots_file;  // multiple_choice; empty: the file itself
  evaluate::InContext::Options icl;
  std::string order = "random";  // icl
  evaluate::Answers::Options answers;
  evaluate::HeadAnalysis::Options head_analysis;
  std::vector<std::string> head_metrics;  // head_analysis; empty: its options' own
  evaluate::Instructions::Options instructions;
  std::filesystem::path out;  // instructions: the folder to write to
};

// The task with its file read. Throws std::runtime_error with one sentence for what is wrong.
std::unique_ptr<evaluate::Task> make_task(const EvaluateCommand& command);

// Positions that a model must have beyond its own for the command's lengths; 0: its own will do.
int64_t positions_for(const EvaluateCommand& command);

// Loads model and adapters, runs the task on the base and then on each adapter (with against_int8:
// on each model and its twin, rows and differences pair by pair, and the largest activations of
// either, activation_extremes.h), and writes rows to `out` and
// progress to `log`. At the first signal it stops computing, writes the rows over what was measured
// until then and says so (an export of instructions writes nothing then); at the second the process
// ends at once. Returns 0, or 130 when stopped. Throws std::runtime_error.
int run_evaluation(const EvaluateCommand& command, const base::StopSignals& signals,
                   const base::Clock& clock, std::ostream& out, std::ostream& log);

}  // namespace dex::serve
