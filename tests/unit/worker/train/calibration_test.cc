// Which rows heads are measured on (method.md §2.3): drawn by the seed, not the longest ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "worker/train/selection.h"

namespace dex::train {
namespace {

using ::testing::ElementsAre;

// Rows of these lengths; each consists of its own index.
std::vector<Example> rows_of(const std::vector<size_t>& lengths) {
  std::vector<Example> rows(lengths.size());
  for (size_t r = 0; r < lengths.size(); ++r) {
    rows[r].ids.assign(lengths[r], static_cast<int32_t>(r));
    rows[r].weights.assign(lengths[r], 1.0F);
  }
  return rows;
}

std::vector<int32_t> chosen(const std::vector<Example>& rows, uint64_t seed,
                            const Calibration& calibration = {}) {
  std::vector<int32_t> out;
  for (const auto& document : calibration_documents(rows, calibration, seed))
    out.push_back(document.ids[0]);
  return out;
}

// 20 rows of 600 tokens, 20 of 200, 5 of 20: with 8 × 512 and skip_rows 32 the first 40 are alike.
TEST(CalibrationTest, LongEnoughRowsAreDrawnWithEqualChances) {
  std::vector<size_t> lengths(20, 600);
  lengths.resize(40, 200);
  lengths.resize(45, 20);
  const auto rows = rows_of(lengths);
  std::map<int32_t, int> drawn;
  std::set<std::vector<int32_t>> choices;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const auto choice = chosen(rows, seed);
    EXPECT_EQ(choice.size(), 8u);
    EXPECT_EQ(choice, chosen(rows, seed));
    choices.insert(choice);
    for (const int32_t row : choice) ++drawn[row];
  }
  EXPECT_EQ(choices.size(), 200u);
  // 1,600 draws of 40 rows: 40 each, give or take five standard deviations of 5.7.
  for (int32_t row = 0; row < 40; ++row) {
    EXPECT_GT(drawn[row], 11) << row;
    EXPECT_LT(drawn[row], 69) << row;
  }
  for (int32_t row = 40; row < 45; ++row) EXPECT_EQ(drawn.count(row), 0u) << row;
  for (const auto& document : calibration_documents(rows, {}, 3))
    EXPECT_EQ(document.ids.size(), std::min<size_t>(512, lengths[document.ids[0]]));
}

TEST(CalibrationTest, TheLongestOthersFillUpWhatIsMissing) {
  const auto rows = rows_of({30, 300, 50, 40, 128, 20, 127});
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    auto choice = chosen(rows, seed, {.n_sequences = 5});
    std::sort(choice.begin(), choice.begin() + 2);
    EXPECT_THAT(choice, ElementsAre(1, 4, 6, 2, 3));  // 300 and 128 in any order, 127, 50, 40
  }
  // A seq_length below 4·skip_rows is what a row has to fill.
  EXPECT_THAT(chosen(rows, 1, {.n_sequences = 7, .seq_length = 16}), ::testing::SizeIs(7));
  const auto filling = chosen(rows, 1, {.n_sequences = 3, .seq_length = 50});
  EXPECT_THAT(filling, ::testing::IsSubsetOf({1, 2, 4, 6}));
}

}  // namespace
}  // namespace dex::train
