#include "services/data/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace dex::data {
namespace {

std::vector<uint64_t> hashes(size_t count, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> values(count);
  for (uint64_t& value : values) value = random();
  return values;
}

int64_t held(const std::vector<bool>& split) {
  return std::ranges::count(split, true);
}

TEST(SplitTest, HoldsOutTheRatioByContentAndSeed) {
  const auto rows = hashes(20000);
  const auto split = split_rows(rows, 7, 0.05);
  EXPECT_NEAR(static_cast<double>(held(split)), 1000, 120);
  EXPECT_EQ(split, split_rows(rows, 7, 0.05));
  EXPECT_NE(split, split_rows(rows, 8, 0.05));
}

TEST(SplitTest, AddedRowsMoveNone) {
  auto rows = hashes(5000);
  const auto before = split_rows(rows, 3, 0.1);
  const auto more = hashes(5000, 2);
  rows.insert(rows.end(), more.begin(), more.end());
  const auto after = split_rows(rows, 3, 0.1);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
}

TEST(SplitTest, EqualRowsFallOnOneSide) {
  auto rows = hashes(300);
  rows.insert(rows.end(), rows.begin(), rows.begin() + 300);
  const auto split = split_rows(rows, 1, 0.02);
  for (size_t i = 0; i < 300; ++i) EXPECT_EQ(split[i], split[i + 300]);
}

TEST(SplitTest, GivesEachSideTenRows) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto few = split_rows(hashes(60, seed), seed, 0.01);
    EXPECT_EQ(held(few), 10);
    const auto half = split_rows(hashes(20, seed), seed, 0.5);
    EXPECT_EQ(held(half), 10);
    EXPECT_EQ(held(split_rows(hashes(6, seed), seed, 0.5)), 3);
  }
  const std::vector<uint64_t> same(100, 42);
  const int64_t together = held(split_rows(same, 1, 0.3));
  EXPECT_TRUE(together == 0 || together == 100);  // never torn apart
  EXPECT_EQ(held(split_rows(hashes(100), 1, 0)), 0);
  EXPECT_TRUE(split_rows({}, 1, 0.1).empty());
}

TEST(SplitTest, AutoRatioFollowsTheApi) {
  EXPECT_EQ(auto_split_ratio(49, false), 0);
  EXPECT_EQ(auto_split_ratio(100000, true), 0);
  EXPECT_DOUBLE_EQ(auto_split_ratio(50, false), 0.2);  // 10 rows
  EXPECT_DOUBLE_EQ(auto_split_ratio(1000, false), 0.05);
  EXPECT_DOUBLE_EQ(auto_split_ratio(100000, false), 0.02);  // 2000 rows
}

}  // namespace
}  // namespace dex::data
