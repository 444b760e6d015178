// What `dex-engine evaluate` refuses before it reads a file or loads a model.
#include <gmock/gmock.h>

#include <exception>
#include <sstream>
#include <string>

#include "services/base/clock.h"
#include "services/base/signals.h"
#include "tests/support/temporary_directory.h"
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

}  // namespace
}  // namespace dex::serve
