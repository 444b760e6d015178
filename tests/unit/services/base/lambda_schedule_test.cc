#include "services/base/lambda_schedule.h"

#include <gtest/gtest.h>

#include <string>

namespace dex::base {
namespace {

LambdaOptions paper(int64_t steps, std::optional<double> init = {}, double learn_init = 0) {
  return {.schedule = Schedule::kPaperEq4,
          .anneal_steps = steps,
          .init = init,
          .learn_init = learn_init};
}
LambdaOptions cosine(int64_t steps, double start, double end) {
  return {.schedule = Schedule::kSeedCosine, .anneal_steps = steps, .start = start, .end = end};
}
LambdaOptions constant(double value) {
  return {.schedule = Schedule::kConstant, .value = value};
}
LambdaOptions learned(double value) {
  return {.schedule = Schedule::kLearned, .learn_init = value};
}

const BranchStart kZero = {}, kBottleneck = {.has_map = false},
                  kLinear = {.zero_difference = false};

// method.md §2.5, by the λ that the run visits.
TEST(DeadPointTest, ALearnedLambdaNeedsABumpAStartOrADifference) {
  EXPECT_EQ(dead_point(paper(50), kZero, 100), "");
  EXPECT_EQ(dead_point(paper(2), kZero, 2), "");  // u = 1 is on the bump
  EXPECT_EQ(dead_point(paper(1), kZero, 100),
            "branch can't start: give anneal_steps ≥ 2, lambda_learn_init ≠ 0 or w_d_init = linear "
            "(anneal_steps is 1 of 100 updates)");
  EXPECT_EQ(dead_point(paper(1), kBottleneck, 100),
            "branch can't start: give anneal_steps ≥ 2 or lambda_learn_init ≠ 0 (anneal_steps is 1 "
            "of 100 updates)");
  EXPECT_EQ(dead_point(paper(1), kLinear, 100), "");
  EXPECT_EQ(dead_point(paper(1, {}, 0.1), kZero, 100), "");
  // A bump of height 0 is none, however long it is.
  EXPECT_EQ(dead_point(paper(50, 0.0), kZero, 100),
            "branch can't start: give lambda_init ≠ 0, lambda_learn_init ≠ 0 or w_d_init = linear "
            "(anneal_steps is 50 of 100 updates)");
  EXPECT_EQ(dead_point(paper(0, 0.0), kBottleneck, 100),
            "branch can't start: give lambda_learn_init ≠ 0 (anneal_steps is 0 of 100 updates)");
  EXPECT_EQ(dead_point(paper(50, 0.0, 0.1), kZero, 100), "");
  EXPECT_EQ(dead_point(paper(50, 0.0), kLinear, 100), "");
  EXPECT_EQ(dead_point(learned(0), kZero, 100),
            "branch can't start: give lambda_learn_init ≠ 0 or w_d_init = linear");
  EXPECT_EQ(dead_point(learned(0), kLinear, 100), "");
  EXPECT_EQ(dead_point(learned(0.1), kZero, 1), "");
}

// Where nobody has counted the updates, only what is dead in every run is.
TEST(DeadPointTest, WithoutANumberOfUpdatesAnyRunWillDo) {
  EXPECT_NE(dead_point(paper(1), kZero, 1), "");
  EXPECT_EQ(dead_point(paper(kManyUpdates / 2), kZero, {}), "");
  EXPECT_EQ(dead_point(cosine(kManyUpdates, 0, 0.3), kZero, {}), "");
  EXPECT_EQ(
      dead_point(paper(1), kZero, {}),
      "branch can't start: give anneal_steps ≥ 2, lambda_learn_init ≠ 0 or w_d_init = linear");
  EXPECT_EQ(dead_point(constant(0), kLinear, {}), "lambda is 0 for the whole job: give value ≠ 0");
}

// λ(0) = 0 and α(0) = 0: whatever λ_learn and w_d start with, one update moves neither.
TEST(DeadPointTest, OneUpdateOfThePapersScheduleMovesNothing) {
  for (const BranchStart& start : {kZero, kLinear}) {
    EXPECT_EQ(dead_point(paper(1, {}, 0.1), start, 1),
              "branch can't start: give at least 2 updates (anneal_steps is 1 of 1 updates)");
  }
  EXPECT_EQ(dead_point(paper(0, {}, 0.1), kZero, 1), "");  // T = 0: λ_learn at once
  EXPECT_EQ(
      dead_point(paper(0), kZero, 1),
      "branch can't start: give lambda_learn_init ≠ 0 or w_d_init = linear (anneal_steps is 0 "
      "of 1 updates)");
}

TEST(DeadPointTest, AFixedLambdaMustBeSomethingSomewhere) {
  const std::string dead = "lambda is 0 for the whole job: ";
  EXPECT_EQ(dead_point(constant(0), kLinear, 100), dead + "give value ≠ 0");
  EXPECT_EQ(dead_point(constant(-0.1), kZero, 100), "");
  EXPECT_EQ(dead_point(cosine(50, 0, 0), kZero, 100), dead + "give start or end ≠ 0");
  EXPECT_EQ(dead_point(cosine(50, 0, 0.3), kZero, 100), "");
  EXPECT_EQ(dead_point(cosine(50, 0.3, 0), kZero, 100), "");
  // T = 0 is the end at once.
  EXPECT_EQ(dead_point(cosine(0, 0.3, 0), kZero, 100),
            dead + "give end ≠ 0, or anneal_steps ≥ 1 to begin at start");
  EXPECT_EQ(dead_point(cosine(0, 0, 0), kZero, 100), dead + "give end ≠ 0");
  EXPECT_EQ(dead_point(cosine(0, 0, 0.3), kZero, 100), "");
  // The only update is at the start.
  EXPECT_EQ(dead_point(cosine(1, 0, 0.3), kZero, 1),
            dead + "give start ≠ 0, or at least 2 updates");
  EXPECT_EQ(dead_point(cosine(1, 0, 0), kZero, 1), dead + "give start ≠ 0");
  EXPECT_EQ(dead_point(cosine(1, 0.1, 0), kZero, 1), "");
}

TEST(DeadPointTest, AnAdaptersFixedLambdaOfZeroStaysZero) {
  const BranchStart adapter = {.zero_difference = false, .goes_on = true};
  EXPECT_EQ(dead_point(constant(0), adapter, 100),
            "lambda is 0 for the whole job: the adapter that it goes on from ended at λ 0; begin "
            "from the base model");
  EXPECT_EQ(dead_point(constant(0.3), adapter, 1), "");
  EXPECT_EQ(dead_point(learned(0), adapter, 1), "");  // its D moves λ_learn
}

}  // namespace
}  // namespace dex::base
