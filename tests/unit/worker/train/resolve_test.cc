#include "worker/train/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/train/advice.h"
#include "worker/train/failure.h"

namespace dex::train {
namespace {

using ::testing::HasSubstr;

TEST(ResolveTest, SequenceLengthComesFromTheRowsWithinTheContext) {
  EXPECT_EQ(sequence_length({}, 100, 2048), 100);
  EXPECT_EQ(sequence_length({}, 5000, 2048), kAutoMaxTokens);
  EXPECT_EQ(sequence_length({}, 5000, 512), 512);
  EXPECT_EQ(sequence_length({}, 3, 2048), 16);
  JobSpec spec;
  spec.hyperparameters.max_seq_length = 2049;
  EXPECT_THROW(sequence_length(spec, 100, 2048), Failure);
}

TEST(ResolveTest, AutomaticNumbersFollowTheTable) {
  const std::vector<int32_t> lengths(800, 512);
  const Resolved small = resolve_batches({}, lengths, 512, 400'000);
  EXPECT_EQ(small.passes, 3);
  EXPECT_EQ(small.batch_size, 8);  // 2400 sequences: 8 give 300 updates, 16 would give 150
  EXPECT_EQ(small.micro_batch_size, 1);
  EXPECT_EQ(resolve_batches({}, lengths, 512, 3'000'000).passes, 2);
  EXPECT_EQ(resolve_batches({}, lengths, 512, 30'000'000).passes, 1);
  EXPECT_EQ(resolve_batches({}, std::vector<int32_t>(20, 128), 128, 1000).batch_size, 1);
  EXPECT_EQ(resolve_batches({}, std::vector<int32_t>(100'000, 64), 64, 1000).batch_size, 64);
  EXPECT_EQ(resolve_batches({}, std::vector<int32_t>(100'000, 64), 64, 1000).micro_batch_size, 8);
  JobSpec retried;
  retried.oom_retries = 2;
  EXPECT_EQ(resolve_batches(retried, std::vector<int32_t>(100'000, 64), 64, 1000).micro_batch_size,
            2);
}

TEST(ResolveTest, SchedulesDependOnTheUpdates) {
  Resolved resolved;
  resolve_schedules({}, 105, resolved);
  EXPECT_EQ(resolved.anneal_steps, 53);  // 52.5 rounds up
  EXPECT_EQ(resolved.warmup, 3);
  EXPECT_EQ(resolved.evaluate_every, 11);
  EXPECT_EQ(resolved.checkpoint_every, 11);
  EXPECT_TRUE(resolved.warnings.empty());
  JobSpec spec;
  spec.anneal.steps = 3000;
  spec.evaluation.every_steps = 7;
  resolve_schedules(spec, 180, resolved);
  EXPECT_EQ(resolved.anneal_steps, 180);
  EXPECT_EQ(resolved.evaluate_every, 7);
  ASSERT_EQ(resolved.warnings.size(), 1u);
  EXPECT_EQ(resolved.warnings[0], "annealing_clamped: anneal_steps 3000 > 180 updates: using 180");
}

TEST(AdviceTest, ThePapersRunIsOutOfReachForLambda) {
  JobSpec spec;  // all rates 1e-4
  Resolved resolved;
  resolve_schedules(spec, 106, resolved);
  // method.md §2.2: λ reaches about 0.0054; r_reach = reach(λ)·√d·lr_diff·F.
  EXPECT_NEAR(branch_reach(spec, resolved, 64), 0.0054 * 8 * 1e-4 * 53.5, 3e-5);
  EXPECT_TRUE(branch_out_of_reach(spec, resolved, 64).has_value());
  spec.dex.lambda.schedule = model::Schedule::kSeedCosine;
  spec.dex.lambda.end = 0.5;
  spec.hyperparameters.branch_learning_rate = 1e-3;
  EXPECT_FALSE(branch_out_of_reach(spec, resolved, 64).has_value());
  // §2.2's estimates for 60 updates on SmolLM2: 0.00008, 0.0018, 0.008.
  resolve_schedules(JobSpec{}, 60, resolved);
  EXPECT_NEAR(branch_reach(JobSpec{}, resolved, 64), 0.00008, 1e-5);
  JobSpec linear;
  linear.dex.w_d_init = model::BranchInit::kLinear;
  EXPECT_NEAR(branch_reach(linear, resolved, 64), 0.0018, 1e-4);
  JobSpec fast;
  fast.hyperparameters.lambda_learning_rate = 1e-2;
  EXPECT_NEAR(branch_reach(fast, resolved, 64), 0.008, 1e-3);
}

TEST(AdviceTest, OverfittingNeedsThreeRisesWhileTrainingFalls) {
  EXPECT_TRUE(overfitting({2.0, 2.1, 2.2, 2.3}, {2.0, 1.9, 1.8}).has_value());
  EXPECT_FALSE(overfitting({2.0, 2.1, 2.2, 2.2}, {2.0, 1.9, 1.8}).has_value());
  EXPECT_FALSE(overfitting({2.0, 2.1, 2.2, 2.3}, {2.0, 1.9, 1.95}).has_value());
  EXPECT_FALSE(overfitting({2.1, 2.2, 2.3}, {2.0, 1.9, 1.8}).has_value());
}

TEST(AdviceTest, DegradedWaitsForAQuarterOfTheAnnealing) {
  JobSpec spec;
  spec.heads.criterion = evaluate::Criterion::kThreshold;
  spec.heads.tau = 1.0;
  spec.heads.eta = 0.03;
  Resolved resolved;
  resolved.anneal_steps = 100;
  EXPECT_FALSE(degraded(2.0, 2.5, 24, spec, resolved, 0.2).has_value());
  EXPECT_FALSE(degraded(2.0, 2.009, 25, spec, resolved, 0.2).has_value());
  EXPECT_THAT(degraded(2.0, 2.1, 25, spec, resolved, 0.2)->suggestion,
              HasSubstr("tau 0.8 and eta 0.04"));
  EXPECT_THAT(degraded(2.0, 2.1, 25, spec, resolved, 0.6)->suggestion,
              HasSubstr("tau 1.2 and eta 0.02"));
}

TEST(AdviceTest, UnstableCountsSpikesAndWildNorms) {
  Resolved resolved;
  resolved.updates = 1000;
  resolved.anneal_steps = 300;
  std::vector<double> losses, norms(50, 1.0);
  for (int i = 0; i < 50; ++i) losses.push_back(2 + 0.01 * (i % 5));
  EXPECT_FALSE(unstable(losses, norms, resolved).has_value());
  losses[10] = losses[20] = losses[30] = 5;
  EXPECT_THAT(unstable(losses, norms, resolved)->suggestion, HasSubstr("anneal_steps 1000"));
  EXPECT_FALSE(unstable({losses.begin(), losses.begin() + 49}, norms, resolved).has_value());
}

TEST(AdviceTest, SelectionsOfNothingOrNearlyEverythingNameBetterThresholds) {
  evaluate::SelectionRule rule;
  rule.criterion = evaluate::Criterion::kThreshold;
  rule.tau = 9;
  rule.eta = 0;
  evaluate::HeadScores scores;
  scores.entropy_nats = scores.entropy_normalized = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}};
  scores.importance = {std::vector<double>(10, 1.0)};
  EXPECT_EQ(selection_share(rule, scores, 0)->topic, "selection_empty");
  EXPECT_EQ(selection_share(rule, scores, 0.7)->topic, "selection_wide");
  EXPECT_FALSE(selection_share(rule, scores, 0.3).has_value());
}

}  // namespace
}  // namespace dex::train
