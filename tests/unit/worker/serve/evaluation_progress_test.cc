// Signs of life of an evaluation as a job: a real (tiny, random) model, a clock of the test's own.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <vector>

#include "services/base/clock.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"
#include "worker/serve/evaluation_run.h"

namespace dex::serve {
namespace {

// Each look takes its time: an engine's step, which looks several times, takes that much longer.
class ClockOfLooks final : public base::Clock {
 public:
  explicit ClockOfLooks(int64_t look_ms) : look_ms_(look_ms) {}
  [[nodiscard]] int64_t now_ms() const override { return now_ms_ += look_ms_; }
  [[nodiscard]] int64_t steady_ms() const override { return now_ms_ += look_ms_; }
  [[nodiscard]] int64_t without_looking() const { return now_ms_; }

 private:
  int64_t look_ms_;
  mutable std::atomic<int64_t> now_ms_ = 1'000;
};

struct Told {
  EvaluationPhase phase;
  size_t done;
  double ratio;
  int64_t at_ms;
  [[nodiscard]] bool same_place(const Told& other) const {
    return phase == other.phase && done == other.done && ratio == other.ratio;
  }
};

class ListeningSession final : public EvaluationSession {
 public:
  explicit ListeningSession(const ClockOfLooks& clock) : clock_(clock) {}
  void progress(EvaluationPhase phase, size_t done, double ratio) override {
    told.push_back({phase, done, ratio, clock_.without_looking()});
  }
  void finished(size_t /*task*/, const evaluate::Evaluation& /*evaluation*/) override {}
  [[nodiscard]] std::stop_token stop() const override { return {}; }

  std::vector<Told> told;

 private:
  const ClockOfLooks& clock_;
};

class EvaluationProgressTest : public ::testing::Test {
 protected:
  EvaluationProgressTest() {
    support::write_tiny_model(dir / "models");
    std::ofstream text(dir / "wiki");
    for (int i = 0; i < 120; ++i)
      text << "The cat number " << i << " sat on the mat and saw " << i * 7 << " birds .\n";
  }

  // Some 30 windows of 128 tokens: for the task one batch a subject, for the engine as many steps.
  std::vector<Told> run(int64_t look_ms) {
    EvaluateCommand command;
    command.task = "perplexity";
    command.file = dir / "wiki";
    command.format = "raw";
    command.perplexity.context_length = 128;
    EvaluationJob job;
    job.subjects.model = dir / "models" / support::kTinyModel;
    job.subjects.threads = 1;
    job.subjects.subjects = {{"base", {}, {}}, {"again", {}, {}}};
    job.tasks = {command};
    job.task_fields = {"tasks[0].perplexity"};
    const ClockOfLooks clock(look_ms);
    ListeningSession session(clock);
    run_evaluation_job(job, 0, session, clock);
    return session.told;
  }

  support::TemporaryDirectory dir;
};

TEST_F(EvaluationProgressTest, IsToldFromInsideABatchAboutOnceASecond) {
  const std::vector<Told> told = run(50);
  int from_inside = 0;
  for (size_t i = 1; i < told.size(); ++i) {
    EXPECT_GE(told[i].ratio, told[i - 1].ratio);
    EXPECT_GE(told[i].done, told[i - 1].done);
    const int64_t passed_ms = told[i].at_ms - told[i - 1].at_ms;
    if (told[i].phase == EvaluationPhase::kEvaluating) {
      EXPECT_LE(passed_ms, 4'000) << i;
    }
    if (!told[i].same_place(told[i - 1])) continue;
    EXPECT_GE(passed_ms, 1'000) << i;
    ++from_inside;
  }
  EXPECT_GE(from_inside, 4) << "two batches of more than five seconds";
}

TEST_F(EvaluationProgressTest, IsNotRepeatedWithinASecond) {
  const std::vector<Told> told = run(0);
  ASSERT_EQ(told.size(), 5U) << "dataset, model, the task's begin, a batch a subject";
  for (size_t i = 1; i < told.size(); ++i) EXPECT_FALSE(told[i].same_place(told[i - 1])) << i;
  EXPECT_DOUBLE_EQ(told.back().ratio, 1);
}

}  // namespace
}  // namespace dex::serve
