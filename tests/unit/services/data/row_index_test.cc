#include "services/data/row_index.h"

#include <gtest/gtest.h>

#include <random>
#include <unordered_map>

namespace dex::data {
namespace {

TEST(RowIndexTest, RemembersTheFirstLineOfEachHash) {
  RowIndex index;
  std::mt19937_64 random(1);
  std::unordered_map<uint64_t, int64_t> model;
  for (int64_t line = 1; line <= 200000; ++line) {
    // Low bits alike, so that slots collide.
    const uint64_t hash = (random() % 60000) << 4;
    const auto seen = index.add(hash, line);
    const auto [entry, is_new] = model.emplace(hash, line);
    ASSERT_EQ(seen, is_new ? std::nullopt : std::optional(entry->second));
  }
}

TEST(RowIndexTest, StopsGrowingAndStillFindsWhatItKnows) {
  RowIndex index;
  const int64_t rows = 5'000'000;
  for (int64_t i = 1; i <= rows; ++i)
    index.add(static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15ull, i);
  EXPECT_EQ(index.add(0x9e3779b97f4a7c15ull, 0), 1);
  EXPECT_EQ(index.add(static_cast<uint64_t>(rows) * 0x9e3779b97f4a7c15ull, 0), std::nullopt);
}

}  // namespace
}  // namespace dex::data
