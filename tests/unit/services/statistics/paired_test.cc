// Figures and verdicts of paired items, worked out by hand.
#include "services/statistics/paired.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>

namespace dex::statistics {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr MetricRule kLoss = {.shares = false, .lower_is_better = true};

// Right or wrong: "1101".
std::vector<Number> answers(const std::string& right) {
  std::vector<Number> out;
  for (const char c : right) out.push_back({c == '1' ? 1.0 : 0.0, 1});
  return out;
}

TEST(FigureTest, IsARatioOfSumsAndMayBeItsExponential) {
  const std::vector<Number> items = {{3, 2}, {1, 4}};
  EXPECT_DOUBLE_EQ(figure(items, kLoss), 4.0 / 6);
  const std::vector<uint32_t> drawn = {0, 0, 1};
  EXPECT_DOUBLE_EQ(figure(items, drawn, kLoss), 7.0 / 8);
  MetricRule perplexity = kLoss;
  perplexity.exponential = true;
  EXPECT_DOUBLE_EQ(figure(items, perplexity), std::exp(4.0 / 6));
  EXPECT_EQ(figure(std::vector<Number>{{5, 0}}, kLoss), 0) << "nothing was counted";
}

// Each item is 0.25 lower, whatever it is: every resample says so, and the interval has no width.
TEST(CompareTest, TakesTheDifferenceInsideEachResample) {
  std::vector<Number> base, subject;
  for (int i = 0; i < 6; ++i) {
    base.push_back({4.0 * i, 4});
    subject.push_back({4.0 * i - 1, 4});
  }
  const auto found = compare(base, subject, kLoss, {});
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(found->delta, -0.25);
  EXPECT_NEAR(found->interval->low, -0.25, 1e-12);
  EXPECT_NEAR(found->interval->high, -0.25, 1e-12);
  EXPECT_EQ(found->n, 6);
  EXPECT_EQ(found->verdict, Verdict::kBetter);
  MetricRule higher = kLoss, neither = kLoss;
  higher.lower_is_better = false;
  neither.judged = false;
  EXPECT_EQ(compare(base, subject, higher, {})->verdict, Verdict::kWorse);
  EXPECT_EQ(compare(base, subject, neither, {})->verdict, Verdict::kDifferent);
  base.pop_back();
  subject.pop_back();
  EXPECT_EQ(compare(base, subject, kLoss, {})->verdict, Verdict::kNoDifference)
      << "five may agree by chance: 2/32 is above 0.05";
}

TEST(CompareTest, RightAndWrongAreMcNemars) {
  const auto none = answers("00000000"), five = answers("11111000"), six = answers("11111100");
  EXPECT_EQ(compare(none, five, {}, {})->verdict, Verdict::kNoDifference) << "p = 2/32";
  EXPECT_EQ(compare(none, six, {}, {})->verdict, Verdict::kBetter) << "p = 2/64";
  EXPECT_EQ(compare(six, none, {}, {})->verdict, Verdict::kWorse);
  EXPECT_DOUBLE_EQ(compare(none, six, {}, {})->delta, 0.75);
  EXPECT_EQ(compare(none, six, {}, {.confidence = 0.99})->verdict, Verdict::kNoDifference);
}

TEST(CompareTest, NothingAndOneItemHaveNoInterval) {
  EXPECT_FALSE(compare({}, {}, kLoss, {}));
  const auto one = compare(std::vector<Number>{{2, 1}}, std::vector<Number>{{5, 1}}, kLoss, {});
  ASSERT_TRUE(one);
  EXPECT_EQ(one->delta, 3);
  EXPECT_FALSE(one->interval);
  EXPECT_EQ(one->verdict, Verdict::kNoDifference);
}

TEST(VerdictNotesTest, SayWhyAnOpenVerdictIsOpen) {
  const auto of = [](int64_t n, double delta) {
    return Comparison{delta, Interval{delta, delta}, Verdict::kNoDifference, n};
  };
  EXPECT_THAT(verdict_notes(std::vector{of(40, 0)}, 0.95), IsEmpty());
  EXPECT_THAT(
      verdict_notes(std::vector{of(3, 0.5), of(5, 0.5)}, 0.95),
      ElementsAre(HasSubstr("n = 3 to 5 are too few for a verdict at 95 %, which takes 6")));
  EXPECT_THAT(verdict_notes(std::vector{of(40, 0.5)}, 0.95),
              ElementsAre(HasSubstr("McNemar's exact test decided")));
}

}  // namespace
}  // namespace dex::statistics
