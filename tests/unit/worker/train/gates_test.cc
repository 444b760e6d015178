#include "worker/train/gates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/worker/train/job_fixture.h"
#include "worker/train/gate_figures.h"

namespace dex::train::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

Gate gate(Gate::Figure figure, double threshold, Gate::OnFail on_fail = Gate::OnFail::kBlockAlias) {
  Gate out;
  out.name = "quality";
  out.figure = figure;
  out.threshold = threshold;
  out.on_fail = on_fail;
  out.condition = "as asked";
  return out;
}

TEST(GateTest, ThePessimisticEndDecidesUnlessThePointIsAsked) {
  const GateFigure figure{1.0, evaluate::Interval{0.5, 1.5}, 40};
  Gate most = gate(Gate::Figure::kHeldOutLoss, 1.2);
  EXPECT_FALSE(judge_gate(most, figure).passed);  // 1.5 > 1.2
  most.bound = false;
  EXPECT_TRUE(judge_gate(most, figure).passed);
  most.bound = true;
  most.threshold = 1.5;
  EXPECT_TRUE(judge_gate(most, figure).passed);
  Gate least = gate(Gate::Figure::kHeldOutLoss, 0.8);
  least.at_least = true;
  EXPECT_FALSE(judge_gate(least, figure).passed);  // 0.5 < 0.8
  least.bound = false;
  EXPECT_TRUE(judge_gate(least, figure).passed);
}

TEST(GateTest, WithoutANumberOrTheIntervalItAsksForItHasNotPassed) {
  Gate least = gate(Gate::Figure::kHeldOutLoss, -1e9);
  least.at_least = true;
  EXPECT_FALSE(judge_gate(least, {1.0, std::nullopt, 1}).passed);
  least.bound = false;
  EXPECT_TRUE(judge_gate(least, {1.0, std::nullopt, 1}).passed);
  EXPECT_FALSE(
      judge_gate(least, {std::numeric_limits<double>::quiet_NaN(), std::nullopt, 0}).passed);
}

TEST(GateTest, AHandfulOfRowsDecidesNoBound) {
  Gate most = gate(Gate::Figure::kHeldOutLoss, 2);
  const GateFigure few{1.25, evaluate::Interval{0.5, 1.5}, 5};
  const GateResult undecided = judge_gate(most, few);
  EXPECT_FALSE(undecided.passed) << "whatever the interval";
  EXPECT_EQ(sentence(undecided),
            "gate quality not passed: as asked; not measured: 5 rows or samples are too few for an "
            "interval whose end could decide, 6 at least: give more data or use USE_POINT; the "
            "value is 1.25 (0.5 to 1.5)");
  EXPECT_TRUE(judge_gate(most, {1.25, evaluate::Interval{0.5, 1.5}, 6}).passed);
  most.bound = false;
  EXPECT_TRUE(judge_gate(most, few).passed);
  EXPECT_EQ(judge_gate(most, few).not_measured, "");
}

TEST(GateTest, TheSentenceHasTheNumbers) {
  const auto result =
      judge_gate(gate(Gate::Figure::kHeldOutLoss, 2), {1.25, evaluate::Interval{0.5, 1.5}, 40});
  EXPECT_EQ(sentence(result), "gate quality passed: as asked; 1.25 (0.5 to 1.5) over 40 rows");
}

// Two rows drawn twice: the mean of the first alone, of both, of the second alone, with chances
// ¼, ½, ¼, so 2.5 % and 97.5 % are the ends.
TEST(GateFigureTest, IsARatioOfSumsWithItsBootstrap) {
  const GateFigure equal = mean_over_rows({{1, 1}, {3, 1}}, 5);
  EXPECT_EQ(equal.value, 2);
  EXPECT_EQ(equal.n, 2);
  ASSERT_TRUE(equal.interval);
  EXPECT_EQ(equal.interval->low, 1);
  EXPECT_EQ(equal.interval->high, 3);
  const GateFigure weighted = mean_over_rows({{1, 1}, {0, 0}, {9, 3}}, 5);
  EXPECT_EQ(weighted.value, 2.5);
  EXPECT_EQ(weighted.n, 2);  // a row without a target is none
  EXPECT_EQ(weighted.interval->low, 1);
  EXPECT_EQ(weighted.interval->high, 3);
  EXPECT_FALSE(mean_over_rows({{4, 2}}, 5).interval);
  EXPECT_EQ(mean_over_rows({{4, 2}}, 5).value, 2);
  EXPECT_TRUE(std::isnan(mean_over_rows({}, 5).value));
}

class GatedJobTest : public JobTest {
 protected:
  // A job that learns: its held-out loss ends well below its base's.
  JobSpec learner(const std::string& attempt, const Gate& gate) const {
    JobSpec spec = this->spec(attempt);
    spec.hyperparameters.max_steps = 40;
    spec.gates.push_back(gate);
    return spec;
  }
};

TEST_F(GatedJobTest, HeldOutLossAgainstTheBase) {
  const JobSpec spec = learner("one", gate(Gate::Figure::kHeldOutLoss, 0));
  RecordingSession session;
  const Published published = run(spec, session);
  ASSERT_EQ(published.gate_results.size(), 1u);
  const GateResult& result = published.gate_results[0];
  EXPECT_TRUE(result.passed);
  EXPECT_TRUE(published.promotable);
  EXPECT_EQ(result.figure.n, 12);
  EXPECT_NEAR(result.figure.value, *published.valid_loss - *published.base_valid_loss, 1e-5);
  EXPECT_LT(result.figure.interval->low, result.figure.value);
  EXPECT_LT(result.figure.value, result.figure.interval->high);
  EXPECT_LT(result.figure.interval->high, 0);
  const auto event = session.data("gate_result").at(0);
  EXPECT_EQ(event.at("gate"), "quality");
  EXPECT_EQ(event.at("passed"), true);
  EXPECT_EQ(event.at("value").get<double>(), result.figure.value);
  EXPECT_EQ(event.at("high").get<double>(), result.figure.interval->high);

  // Between value and high end: surely lower it is not, lower it is.
  const double between = (result.figure.value + result.figure.interval->high) / 2;
  Gate strict = gate(Gate::Figure::kHeldOutLoss, between), point = strict;
  point.name = "point";
  point.bound = false;
  JobSpec both = learner("two", strict);
  both.gates.push_back(point);
  RecordingSession again;
  const Published second = run(both, again);
  EXPECT_FALSE(second.gate_results.at(0).passed);
  EXPECT_TRUE(second.gate_results.at(1).passed);
  EXPECT_FALSE(second.promotable);
  EXPECT_TRUE(fs::exists(fs::path(second.path) / "adapter_model.safetensors"));  // BLOCK_ALIAS
}

TEST_F(GatedJobTest, FailJobPublishesNothingAndReportsEveryGate) {
  Gate fails = gate(Gate::Figure::kHeldOutLoss, 0.1, Gate::OnFail::kFailJob);
  fails.against_base = false;
  Gate passes = gate(Gate::Figure::kHeldOutLoss, 100);
  passes.name = "passes";
  JobSpec spec = learner("failed", fails);
  spec.gates.push_back(passes);
  RecordingSession session;
  const Failure failure = failure_of(spec, session);
  EXPECT_EQ(failure.exit(), Exit::kGuard);
  EXPECT_EQ(failure.code(), "gate_failed");
  EXPECT_THAT(failure.what(), HasSubstr("gate quality not passed"));
  EXPECT_EQ(session.data("gate_result").size(), 2u);
  EXPECT_FALSE(fs::exists(spec.attempt_dir / "final"));
}

TEST_F(GatedJobTest, WarnChangesNothingButTheEvent) {
  Gate warns = gate(Gate::Figure::kHeldOutLoss, 0.1, Gate::OnFail::kWarn);
  warns.against_base = false;
  RecordingSession session;
  const Published published = run(learner("warned", warns), session);
  EXPECT_FALSE(published.gate_results.at(0).passed);
  EXPECT_TRUE(published.promotable);
  EXPECT_NEAR(published.gate_results.at(0).figure.value, *published.valid_loss, 1e-5);
}

TEST_F(GatedJobTest, TheBranchsEffectIsAPoint) {
  Gate value = gate(Gate::Figure::kBranchValue, 0);
  value.at_least = true;
  value.bound = false;
  Gate delta = value;
  delta.name = "delta";
  delta.figure = Gate::Figure::kBranchCeDelta;
  JobSpec spec = learner("branch", value);
  spec.gates.push_back(delta);
  RecordingSession session;
  const Published published = run(spec, session);
  EXPECT_TRUE(published.gate_results.at(0).passed);
  EXPECT_EQ(published.gate_results.at(0).figure.value, published.branch_effect.value);
  EXPECT_FALSE(published.gate_results.at(0).figure.interval);
  EXPECT_EQ(published.gate_results.at(0).figure.n, published.branch_effect.tokens);
  EXPECT_EQ(published.gate_results.at(1).figure.value, published.branch_effect.ce_delta);
}

// A branch that does nothing is nothing to promote, whatever the gates (api.md §3).
TEST_F(GatedJobTest, AnInertBranchIsNotPromotable) {
  JobSpec spec = this->spec("inert");
  spec.hyperparameters.branch_learning_rate = 1e-9;
  RecordingSession session;
  const Published published = run(spec, session);
  ASSERT_EQ(published.branch_effect.verdict, evaluate::BranchEffect::Verdict::kInert);
  EXPECT_FALSE(published.promotable);
}

TEST_F(GatedJobTest, HeldOutGatesNeedHeldOutRows) {
  JobSpec spec = learner("none", gate(Gate::Figure::kHeldOutLoss, 0));
  spec.validation_path.clear();
  spec.validation_split = 0;
  const Failure failure = failure_of(spec);
  EXPECT_EQ(failure.exit(), Exit::kBadSpec);
  EXPECT_THAT(failure.what(), HasSubstr("gate quality needs held-out rows"));
}

}  // namespace
}  // namespace dex::train::testing
