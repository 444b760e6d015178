#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "worker/train/data_plan.h"
#include "worker/train/head_masks.h"
#include "worker/train/learning_rate.h"
#include "worker/train/packing.h"
#include "worker/train/philox.h"

namespace dex::train {
namespace {

TEST(LearningRateTest, CosineWithWarmupGivesTheWorkedValues) {
  const int64_t updates = 100, warmup = warmup_updates(0.03, updates);
  EXPECT_EQ(warmup, 3);
  const auto f = [&](int64_t u) {
    return learning_rate_factor(LrSchedule::kCosine, u, updates, warmup);
  };
  EXPECT_NEAR(f(0), 0.333333, 5e-7);  // method.md §2.3
  EXPECT_NEAR(f(1), 0.666667, 5e-7);
  EXPECT_NEAR(f(2), 1, 1e-12);
  EXPECT_NEAR(f(3), 1, 1e-12);
  EXPECT_NEAR(f(51), 0.508097, 5e-7);
  EXPECT_NEAR(f(99), 0.000262, 5e-7);
}

TEST(LearningRateTest, WarmupRoundsHalfUpAndIsAtLeastOne) {
  EXPECT_EQ(warmup_updates(0, 100), 0);
  EXPECT_EQ(warmup_updates(0.03, 10), 1);
  EXPECT_EQ(warmup_updates(0.05, 50), 3);  // 2.5
  EXPECT_EQ(warmup_updates(0.03, 1), 1);
}

TEST(LearningRateTest, OtherSchedulesAndTheReach) {
  EXPECT_DOUBLE_EQ(learning_rate_factor(LrSchedule::kLinear, 10, 20, 0), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate_factor(LrSchedule::kConstant, 10, 20, 0), 1);
  EXPECT_NEAR(learning_rate_reach(LrSchedule::kCosine, 106, 3), 53,
              1.5);  // about N/2, method.md §2.2
}

TEST(PhiloxTest, StreamsAreFunctionsOfSeedSiteAndStream) {
  const auto draw = [](uint64_t seed, Site site, uint64_t stream) {
    Philox random(seed, site, stream);
    std::vector<uint32_t> words;
    for (int i = 0; i < 8; ++i) words.push_back(random.next());
    return words;
  };
  EXPECT_EQ(draw(7, Site::kOrder, 3), draw(7, Site::kOrder, 3));
  EXPECT_NE(draw(7, Site::kOrder, 3), draw(8, Site::kOrder, 3));
  EXPECT_NE(draw(7, Site::kOrder, 3), draw(7, Site::kPacks, 3));
  EXPECT_NE(draw(7, Site::kOrder, 3), draw(7, Site::kOrder, 4));
}

TEST(PhiloxTest, BelowIsUniformWithinItsBound) {
  Philox random(1, Site::kOrder);
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts.at(random.below(7));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 400);  // four standard deviations
}

TEST(PhiloxTest, PermutationsHoldEachNumberOnceAndDifferByPass) {
  auto first = permutation(1000, 5, Site::kOrder, 0);
  EXPECT_NE(first, permutation(1000, 5, Site::kOrder, 1));
  std::sort(first.begin(), first.end());
  for (uint32_t i = 0; i < 1000; ++i) EXPECT_EQ(first[i], i);
}

std::vector<int32_t> some_lengths(int count) {
  Philox random(3, Site::kOrder);
  std::vector<int32_t> lengths;
  for (int i = 0; i < count; ++i) lengths.push_back(1 + static_cast<int32_t>(random.below(100)));
  return lengths;
}

TEST(PackingTest, EveryExampleLandsInOnePackThatFits) {
  const auto lengths = some_lengths(3000);
  PackingOptions options{.max_tokens = 128, .window = 256};
  const auto packs = pack_pass(lengths, options, 9, 0);
  std::multiset<uint32_t> seen;
  int64_t tokens = 0;
  for (const Pack& pack : packs) {
    int32_t size = 0;
    for (const uint32_t index : pack) {
      seen.insert(index);
      size += lengths[index];
    }
    EXPECT_LE(size, 128);
    tokens += size;
  }
  EXPECT_EQ(seen.size(), 3000u);
  EXPECT_EQ(std::set<uint32_t>(seen.begin(), seen.end()).size(), 3000u);
  EXPECT_GT(static_cast<double>(tokens) / (128.0 * static_cast<double>(packs.size())), 0.95);
  EXPECT_EQ(packs, pack_pass(lengths, options, 9, 0));
  EXPECT_NE(packs, pack_pass(lengths, options, 9, 1));
}

TEST(PackingTest, WithoutPackingEachExampleStandsAlone) {
  const auto packs = pack_pass(some_lengths(10), {.max_tokens = 128, .packing = false}, 1, 0);
  EXPECT_EQ(packs.size(), 10u);
  for (const Pack& pack : packs) EXPECT_EQ(pack.size(), 1u);
}

TEST(PackingTest, TooLongExamplesAreRefusedByIndex) {
  EXPECT_THROW(pack_pass(std::vector<int32_t>{5, 200}, {.max_tokens = 128}, 1, 0),
               std::runtime_error);
}

TEST(DataPlanTest, UpdatesCoverEachPassOnceAndDependOnTheUpdateAlone) {
  DataPlan::Options options;
  options.packing.max_tokens = 128;
  options.batch_size = 8;
  options.passes = 2;
  options.seed = 4;
  const auto lengths = some_lengths(500);
  DataPlan plan(lengths, options), again(lengths, options);
  std::multiset<uint32_t> seen;
  for (int64_t u = 0; u < plan.updates(); ++u) {
    const auto update = plan.update(u);
    EXPECT_LE(update.packs.size(), 8u);
    for (const Pack& pack : update.packs) seen.insert(pack.begin(), pack.end());
    if (update.ends_pass) {
      EXPECT_DOUBLE_EQ(update.passes_done, static_cast<double>(update.pass + 1));
    }
  }
  for (uint32_t i = 0; i < 500; ++i) EXPECT_EQ(seen.count(i), 2u);
  // Asked out of order, as after a resume: the same packs.
  for (const int64_t u : {plan.updates() - 1, int64_t{3}, int64_t{0}}) {
    const auto a = plan.update(u), b = again.update(u);
    EXPECT_TRUE(std::equal(a.packs.begin(), a.packs.end(), b.packs.begin(), b.packs.end()));
  }
}

TEST(DataPlanTest, MaxStepsWinsOverPasses) {
  DataPlan::Options options{.batch_size = 4, .passes = 1, .max_steps = 37};
  DataPlan plan(std::vector<int32_t>(20, 512), options);  // 5 updates a pass
  EXPECT_EQ(plan.updates(), 37);
  EXPECT_EQ(plan.update(36).pass, 7);
  options.max_steps = 3;
  EXPECT_EQ(DataPlan(std::vector<int32_t>(20, 512), options).updates(), 3);
}

TEST(HeadMasksTest, RampsMoveLinearlyFromWhereTheyAre) {
  HeadMasks masks({{0, 1}}, 3, /*ramp=*/4);
  EXPECT_EQ(masks.layer(0, 0), (std::vector<float>{1, 1, 0}));
  masks.change({{1, 2}}, 10);
  EXPECT_EQ(masks.layer(0, 10), (std::vector<float>{1, 1, 0}));
  EXPECT_EQ(masks.layer(0, 11), (std::vector<float>{0.75, 1, 0.25}));
  masks.change({{0, 1}}, 12);  // turned round half-way
  EXPECT_EQ(masks.layer(0, 12), (std::vector<float>{0.5, 1, 0.5}));
  EXPECT_FALSE(masks.settled(13));
  EXPECT_EQ(masks.layer(0, 16), (std::vector<float>{1, 1, 0}));
  EXPECT_TRUE(masks.settled(16));
  EXPECT_EQ(masks.selected()[0], (std::vector<int32_t>{0, 1}));
}

TEST(HeadMasksTest, ReselectionStopsEarlyEnoughForWholeMasks) {
  const int64_t updates = 1000;
  EXPECT_FALSE(reselects_at(0, 100, updates));
  EXPECT_TRUE(reselects_at(100, 100, updates));
  EXPECT_FALSE(reselects_at(150, 100, updates));
  EXPECT_TRUE(reselects_at(800, 100, updates));
  EXPECT_FALSE(reselects_at(900, 100, updates));
  EXPECT_EQ(mask_ramp(updates), 50);
  EXPECT_EQ(mask_ramp(10), 1);
  for (int64_t u = 1; u < updates; ++u) {
    if (!reselects_at(u, 1, updates)) continue;
    EXPECT_LE(u + mask_ramp(updates), updates);
  }
}

}  // namespace
}  // namespace dex::train
