// What `dex-engine evaluate` refuses before it reads a file or loads a model, and what it shows of
// models in eight bits.
#include <gmock/gmock.h>

#include <exception>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "services/base/clock.h"
#include "services/base/signals.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"
#include "worker/serve/evaluate_command.h"

namespace dex::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// In which words the command is refused; neither its file nor its model is there.
std::string refusal_of(EvaluateCommand command) {
  const support::TemporaryDirectory dir;
  command.model = dir / "no-model";
  command.file = dir / "no-file";
  const base::StopSignals signals;
  base::SystemClock clock;
  std::ostringstream out, log;
  try {
    run_evaluation(command, signals, clock, out, log);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

// A pair of model and eight-bit twin has one task's answers to compare: instructions has none.
TEST(EvaluateCommandTest, EightBitsAreRefusedWhereNothingIsCompared) {
  EvaluateCommand command;
  command.against_int8 = true;
  command.task = "instructions";
  command.adapters = {"an-adapter"};
  EXPECT_THAT(refusal_of(command), StartsWith("--against-int8: instructions"));
  command.task = "head_analysis";
  EXPECT_THAT(refusal_of(command), StartsWith("--against-int8: heads"));
  command.task = "perplexity";
  command.dtype = "int8";
  EXPECT_THAT(refusal_of(command), HasSubstr("int8 with itself"));
  command.dtype = "bf16";
  EXPECT_THAT(refusal_of(command), Not(HasSubstr("--against-int8"))) << "its file is missing";
}

TEST(EvaluateCommandTest, TheShippedTextHasNoOtherFormat) {
  EvaluateCommand command;
  command.task = "multi_needle";
  EXPECT_NE(make_task(command), nullptr);
  command.format = "jsonl";
  try {
    make_task(command);
    FAIL() << "a format without a file is refused";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), StartsWith("--format has no effect without --file"));
  }
}

// method.md §8.5: quality in both, and the largest activations of either.
TEST(EvaluateCommandTest, EightBitsAreShownBesideTheLargestActivations) {
  const support::TemporaryDirectory dir;
  support::write_tiny_model(dir.path());
  std::ofstream text(dir / "wiki");
  for (int i = 0; i < 20; ++i) text << "The cat number " << i << " sat on the mat .\n";
  text.close();
  EvaluateCommand command;
  command.task = "perplexity";
  command.model = dir / support::kTinyModel;
  command.file = dir / "wiki";
  command.perplexity.context_length = 64;
  command.threads = 1;
  command.adapters = {"none"};
  command.against_int8 = true;
  const base::StopSignals signals;
  base::SystemClock clock;
  std::ostringstream out, log;
  ASSERT_EQ(run_evaluation(command, signals, clock, out, log), 0) << log.str();
  for (const char* metric : {"loss", "largest_hidden", "largest_attention_logit"}) {
    for (const char* label : {"base", "base-int8", "base-2", "base-2-int8"}) {
      const std::string pattern = std::string(metric) + " +" + label + " [^\n]*[1-9]";
      EXPECT_THAT(out.str(), ::testing::ContainsRegex(pattern));
    }
  }
  EXPECT_THAT(out.str(), HasSubstr("note: largest_hidden is of the residual stream"));
  // Only where eight bits are asked for.
  command.against_int8 = false;
  std::ostringstream plain;
  ASSERT_EQ(run_evaluation(command, signals, clock, plain, log), 0);
  EXPECT_THAT(plain.str(), Not(HasSubstr("largest_")));
}

}  // namespace
}  // namespace dex::serve
