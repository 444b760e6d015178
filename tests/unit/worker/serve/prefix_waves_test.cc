#include "worker/serve/prefix_waves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dex::serve {
namespace {

using ::testing::ElementsAre;
using Scoring = evaluate::Subject::Scoring;

// `shared` tokens of a common beginning, then some of its own; everything of its own is scored.
Scoring item(int32_t shared, int32_t own, int32_t id, int32_t second_shared = 0) {
  Scoring out;
  for (int32_t i = 0; i < shared; ++i) out.tokens.push_back(i);
  for (int32_t i = 0; i < second_shared; ++i) out.tokens.push_back(1000 * (id / 10) + i);
  out.first = shared + second_shared;
  for (int32_t i = 0; i < own; ++i) out.tokens.push_back(100'000 + 100 * id + i);
  return out;
}

TEST(PrefixWavesTest, ItemsThatShareNothingRunTogether) {
  const std::vector<Scoring> items = {item(0, 40, 1), item(0, 40, 2), item(15, 5, 3),
                                      item(15, 5, 4)};
  std::vector<Scoring> with_first = items;
  for (auto& one : with_first) one.first = std::max(1, one.first);
  EXPECT_THAT(prefix_waves(with_first, 16), ElementsAre(ElementsAre(0, 1, 2, 3)));
}

TEST(PrefixWavesTest, OneGoesAheadWithWhatTheOthersShare) {
  const std::vector<Scoring> items = {item(32, 5, 1), item(32, 5, 2), item(32, 5, 3)};
  EXPECT_THAT(prefix_waves(items, 16), ElementsAre(ElementsAre(0), ElementsAre(1, 2)));
}

TEST(PrefixWavesTest, ExamplesFirstThenAQuestionEachThenItsChoices) {
  // Two questions with two choices each behind the same examples.
  const std::vector<Scoring> items = {item(32, 3, 10, 20), item(32, 3, 11, 20), item(32, 3, 20, 20),
                                      item(32, 3, 21, 20)};
  EXPECT_THAT(prefix_waves(items, 16),
              ElementsAre(ElementsAre(0), ElementsAre(1, 2), ElementsAre(3)));
}

TEST(PrefixWavesTest, BlocksWhoseLogitsAreNeededAreNotWaitedFor) {
  // The same 40 tokens, but everything from the first on is scored.
  std::vector<Scoring> items = {item(40, 1, 1), item(40, 1, 2)};
  for (auto& one : items) one.first = 1;
  EXPECT_THAT(prefix_waves(items, 16), ElementsAre(ElementsAre(0, 1)));
}

}  // namespace
}  // namespace dex::serve
