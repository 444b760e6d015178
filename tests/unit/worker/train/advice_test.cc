#include "worker/train/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dex::train {
namespace {

using ::testing::HasSubstr;

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

// r ≤ reach(λ)·lr_diff·F where there are only gates.
TEST(AdviceTest, UniformMapsGatesAreEstimatedToo) {
  JobSpec spec;
  spec.dex.form = model::Form::kUniformMap;
  spec.dex.lambda = {.schedule = model::Schedule::kConstant, .value = 0.5};
  Resolved resolved;
  resolve_schedules(spec, 106, resolved);
  const double sum =
      learning_rate_reach(spec.hyperparameters.schedule, resolved.updates, resolved.warmup);
  EXPECT_NEAR(sum, 53, 1);
  EXPECT_DOUBLE_EQ(branch_reach(spec, resolved, 64), 0.5 * 1e-4 * sum);
  EXPECT_TRUE(branch_out_of_reach(spec, resolved, 64).has_value());
  spec.hyperparameters.branch_learning_rate = 1e-2;
  EXPECT_FALSE(branch_out_of_reach(spec, resolved, 64).has_value());
  spec.dex.form = model::Form::kPaper;  // a bottleneck is not estimated
  spec.dex.projection = model::Projection::kBottleneck;
  spec.hyperparameters.branch_learning_rate = 1e-6;
  EXPECT_FALSE(branch_out_of_reach(spec, resolved, 64).has_value());
}

JobSpec cosine() {
  JobSpec spec;
  spec.dex.lambda.schedule = model::Schedule::kSeedCosine;
  spec.dex.lambda.start = 0.05;
  spec.dex.lambda.end = 0.3;
  return spec;
}

evaluate::BranchEffect effect(evaluate::BranchEffect::Verdict verdict, double value, double delta) {
  evaluate::BranchEffect out;
  out.verdict = verdict;
  out.value = value;
  out.ce_delta = delta;
  return out;
}

TEST(AdviceTest, EachScheduleHasItsOwnWayToAStrongerBranch) {
  using Verdict = evaluate::BranchEffect::Verdict;
  Resolved resolved;
  resolve_schedules(JobSpec{}, 24, resolved);
  const std::string learned =
      "raise lambda_learning_rate to 0.01 (now 1.0e-04) and branch_learning_rate to 0.001 (now "
      "1.0e-04), train for more updates, or use a COSINE schedule of λ";
  const std::string scheduled =
      "raise lambda.end (now 0.3) and branch_learning_rate to 0.001 (now 1.0e-04), or train for "
      "more updates";
  EXPECT_EQ(branch_out_of_reach({}, resolved, 64)->suggestion, learned);
  EXPECT_EQ(branch_out_of_reach(cosine(), resolved, 64)->suggestion, scheduled);
  const auto weak = effect(Verdict::kWeak, 0.008434679943024255, 0.00061234);
  EXPECT_EQ(ineffective(weak, {}, resolved, true)->suggestion, learned + "; compare with kvo_only");
  EXPECT_EQ(ineffective(weak, cosine(), resolved, true)->suggestion,
            scheduled + "; compare with kvo_only");
  EXPECT_EQ(ineffective(weak, cosine(), resolved, true)->topic, "weak");
  EXPECT_EQ(ineffective(weak, cosine(), resolved, true)->evidence,
            "the branch's share of O is 0.0084 at the end, where λ can reach 0.3; without it the "
            "held-out loss would be 6.1e-04 higher");
  const auto inert = effect(Verdict::kInert, 0.001, -0.02);
  EXPECT_EQ(ineffective(inert, cosine(), resolved, false)->topic, "inert");
  EXPECT_THAT(ineffective(inert, cosine(), resolved, false)->evidence,
              HasSubstr("without it the training loss would be 0.02 lower"));
  EXPECT_FALSE(ineffective(effect(Verdict::kActive, 0.1, 0), {}, resolved, true).has_value());
  EXPECT_FALSE(ineffective(effect(Verdict::kNotApplicable, 0, 0), {}, resolved, true).has_value());
  // A rate that is as high already has no smaller figure suggested to it.
  JobSpec fast = cosine();
  fast.hyperparameters.branch_learning_rate = 5e-3;
  EXPECT_THAT(ineffective(inert, fast, resolved, false)->suggestion,
              HasSubstr("and branch_learning_rate (now 0.005), or"));
}

TEST(AdviceTest, OverfittingNeedsThreeRisesWhileTrainingFalls) {
  EXPECT_TRUE(overfitting({2.0, 2.1, 2.2, 2.3}, {2.0, 1.9, 1.8}, {}).has_value());
  EXPECT_FALSE(overfitting({2.0, 2.1, 2.2, 2.2}, {2.0, 1.9, 1.8}, {}).has_value());
  EXPECT_FALSE(overfitting({2.0, 2.1, 2.2, 2.3}, {2.0, 1.9, 1.95}, {}).has_value());
  EXPECT_FALSE(overfitting({2.1, 2.2, 2.3}, {2.0, 1.9, 1.8}, {}).has_value());
}

// What is named exists in the method: no branch of LoRA's, no base rate of dex_only's.
TEST(AdviceTest, OverfittingNamesTheMethodsOwnRates) {
  const auto suggestion = [](model::Train train, double rate) {
    JobSpec spec;
    spec.dex.train = train;
    spec.hyperparameters.learning_rate = rate;
    spec.hyperparameters.branch_learning_rate = 3e-4;
    return overfitting({2.0, 2.1, 2.2, 2.3}, {2.0, 1.9, 1.8}, spec)->suggestion;
  };
  const std::string rest = ", fewer passes, or the best checkpoint";
  EXPECT_EQ(suggestion(model::Train::kKvoDex, 1e-4),
            "separate rates (learning_rate 5e-5, branch_learning_rate 1e-4)" + rest);
  EXPECT_EQ(suggestion(model::Train::kKvoDex, 5e-5), "a lower learning_rate (now 5.0e-05)" + rest);
  for (const auto train : {model::Train::kLora, model::Train::kFull, model::Train::kAdapter,
                           model::Train::kKvoOnly, model::Train::kFullDex}) {
    EXPECT_EQ(suggestion(train, 2e-4), "a lower learning_rate (now 2.0e-04)" + rest);
  }
  EXPECT_EQ(suggestion(model::Train::kDexOnly, 1e-4),
            "a lower branch_learning_rate (now 3.0e-04)" + rest);
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
              HasSubstr("tau 1.2 and eta 0.02; then a lower lambda_learning_rate (now 1.0e-04); "
                        "then a lower learning_rate"));
  JobSpec scheduled = cosine();
  scheduled.heads = spec.heads;
  EXPECT_THAT(degraded(2.0, 2.1, 25, scheduled, resolved, 0.2)->suggestion,
              HasSubstr("then a lower lambda.end (now 0.3); then a lower learning_rate"));
  spec.heads.eta = 0;  // no contribution is below 0: the threshold stays where it is
  EXPECT_THAT(degraded(2.0, 2.1, 25, spec, resolved, 0.6)->suggestion,
              HasSubstr("tau 1.2 and eta 0; then"));
  JobSpec only;
  only.dex.train = model::Train::kDexOnly;
  EXPECT_EQ(degraded(2.0, 2.1, 25, only, resolved, 0.5)->suggestion,
            "a lower branch_learning_rate (now 1.0e-04)");
}

TEST(AdviceTest, UnstableCountsSpikesAndWildNorms) {
  JobSpec spec;
  Resolved resolved;
  resolved.updates = 1000;
  resolved.anneal_steps = 300;
  std::vector<double> losses, norms(50, 1.0);
  for (int i = 0; i < 50; ++i) losses.push_back(2 + 0.01 * (i % 5));
  EXPECT_FALSE(unstable(losses, norms, spec, resolved).has_value());
  losses[10] = losses[20] = losses[30] = 5;
  EXPECT_THAT(unstable(losses, norms, spec, resolved)->suggestion,
              HasSubstr("anneal_steps 1000 (T/N 1), or"));
  resolved.anneal_steps = 1000;  // as long as can be
  EXPECT_EQ(unstable(losses, norms, spec, resolved)->suggestion,
            "a lower learning_rate (now 1.0e-04)");
  // Where nothing is annealed, nothing is annealed more slowly: create refuses anneal_steps there.
  for (const auto schedule : {model::Schedule::kLearned, model::Schedule::kConstant}) {
    JobSpec still;
    still.dex.lambda.schedule = schedule;
    resolved.anneal_steps = 300;
    EXPECT_EQ(unstable(losses, norms, still, resolved)->suggestion,
              "a lower learning_rate (now 1.0e-04)");
  }
  JobSpec control;
  control.dex.form = model::Form::kNone;
  resolved.anneal_steps = 300;
  EXPECT_THAT(unstable(losses, norms, control, resolved)->sentence(),
              ::testing::Not(HasSubstr("anneal")));
  EXPECT_FALSE(unstable({losses.begin(), losses.begin() + 49}, norms, spec, resolved).has_value());
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
