#include "worker/train/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace dex::train
