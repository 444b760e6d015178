#include "worker/train/console_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace dex::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

class ConsoleSessionTest : public ::testing::Test {
 protected:
  struct StillClock final : base::Clock {
    int64_t now_ms() const override { return 0; }
    int64_t steady_ms() const override { return 0; }
  };
  static Progress at(int64_t step) {
    Progress progress;
    progress.step = step;
    progress.total_steps = 3;
    progress.train_loss = 2.5;
    progress.tokens_per_second = 80;
    return progress;
  }

  base::StopSignals signals_;
  StillClock clock_;
  std::ostringstream out_;
  ConsoleSession session_{out_, signals_, clock_};
};

// What a job reports at its end: the last update, its evaluation with a point by layer, the
// checkpoint, and phases whose progress knows no speed any more.
TEST_F(ConsoleSessionTest, TheLastStepHasOneLine) {
  for (int64_t step = 1; step <= 3; ++step) session_.progress(Phase::kTraining, at(step));
  session_.progress(Phase::kEvaluating, at(3));
  session_.event({Event::Level::kInfo, "metrics", "", R"({"step": 3, "lambda": [0.3]})"});
  session_.progress(Phase::kSavingCheckpoint, at(3));
  Progress end;
  end.step = end.total_steps = 3;
  for (const Phase phase : {Phase::kExporting, Phase::kVerifying, Phase::kFinalizing})
    session_.progress(phase, end);
  EXPECT_EQ(count(out_.str(), "step 3/3"), 1u) << out_.str();
  EXPECT_THAT(out_.str(), HasSubstr("step 3/3  loss 2.5000  80.0 tok/s"));
  EXPECT_THAT(out_.str(), Not(HasSubstr(" 0.0 tok/s")));
}

TEST_F(ConsoleSessionTest, WarningsAndAdviceAreSaidAsSuch) {
  session_.event({Event::Level::kWarn, "warning", "truncated: 3 rows lose 9 tokens", ""});
  session_.event({Event::Level::kInfo, "training_complete", "3 updates, 90 tokens", ""});
  EXPECT_EQ(out_.str(),
            "warning: truncated: 3 rows lose 9 tokens\ntraining_complete: 3 updates, 90 tokens\n");
}

}  // namespace
}  // namespace dex::train
