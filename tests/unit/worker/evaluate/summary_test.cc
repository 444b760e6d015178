#include "worker/evaluate/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "worker/evaluate/heat_map.h"
#include "worker/evaluate/report_text.h"

namespace dex::evaluate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<Metric> kAccuracy = {{"accuracy"}};

// Right or wrong, item by item: "1101".
Observed answers(const std::string& subject, const std::string& right) {
  Observed out{subject, {}};
  for (size_t i = 0; i < right.size(); ++i)
    out.observations.push_back({0, static_cast<int64_t>(i), {}, right[i] - '0' + 0.0, 1});
  return out;
}

std::vector<ResultRow> rows(const std::vector<Observed>& observed,
                            const std::vector<Metric>& metrics = kAccuracy) {
  return summarise("task", metrics, observed, {});
}

TEST(SummaryTest, SharesHaveWilsonsIntervalAndTheBaselineNoComparison) {
  const auto found = rows({answers("base", "11111110000000000000")});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_DOUBLE_EQ(found[0].value, .35);
  EXPECT_NEAR(found[0].interval->low, 0.1811918241, 1e-9);
  EXPECT_NEAR(found[0].interval->high, 0.5671457233, 1e-9);
  EXPECT_EQ(found[0].kind, IntervalKind::kWilson);
  EXPECT_EQ(found[0].n, 20);
  EXPECT_FALSE(found[0].comparison);
}

// Ten prompts that ask for two numbers each, five answered whole and five by half: Wilson of 7.5
// out of 10, not of 15 out of 20 (0.5313 – 0.8881).
TEST(SummaryTest, AnItemThatCountsSeveralTimesIsOneTrial) {
  Observed base{"base", {}};
  for (int64_t item = 0; item < 10; ++item)
    base.observations.push_back({0, item, {}, item % 2 == 0 ? 2.0 : 1.0, 2});
  const auto found = rows({base});
  EXPECT_DOUBLE_EQ(found[0].value, .75);
  EXPECT_NEAR(found[0].interval->low, 0.4421814242785499, 1e-9);
  EXPECT_NEAR(found[0].interval->high, 0.9190521757900055, 1e-9);
  EXPECT_EQ(found[0].n, 10);
  EXPECT_EQ(found[0].kind, IntervalKind::kWilson);

  // All or nothing of four says what right or wrong says.
  Observed fours{"base", {}};
  for (int64_t item = 0; item < 20; ++item)
    fours.observations.push_back({0, item, {}, item < 7 ? 4.0 : 0.0, 4});
  EXPECT_EQ(rows({fours})[0].interval->low,
            rows({answers("base", "11111110000000000000")})[0].interval->low);

  // Weights 3, 1 and 1: 25/11 effective items, of which 3/5.
  const Observed uneven{"base", {{0, 0, {}, 3, 3}, {0, 1, {}, 0, 1}, {0, 2, {}, 0, 1}}};
  EXPECT_NEAR(rows({uneven})[0].interval->low, 0.14380624745998832, 1e-9);
  EXPECT_NEAR(rows({uneven})[0].interval->high, 0.9305365101205384, 1e-9);
  EXPECT_EQ(rows({uneven})[0].n, 3);
}

TEST(SummaryTest, EqualSubjectsDifferByNothing) {
  const auto found = rows({answers("base", "0110101"), answers("same", "0110101")});
  const Comparison& comparison = *found[1].comparison;
  EXPECT_EQ(comparison.delta, 0);
  EXPECT_EQ(comparison.interval->low, 0);
  EXPECT_EQ(comparison.interval->high, 0);
  EXPECT_EQ(comparison.verdict, Verdict::kNoDifference);
}

TEST(SummaryTest, VerdictOfRightAndWrongIsMcNemars) {
  // Five against none: p = 0.0625. Six against none: p = 0.03125.
  const std::string wrong(20, '0');
  const auto five = rows({answers("base", wrong), answers("new", "11111" + std::string(15, '0'))});
  EXPECT_EQ(five[1].comparison->verdict, Verdict::kNoDifference);
  EXPECT_GT(five[1].comparison->interval->low, 0);  // the bootstrap alone would have said BETTER
  const auto six = rows({answers("base", wrong), answers("new", "111111" + std::string(14, '0'))});
  EXPECT_EQ(six[1].comparison->verdict, Verdict::kBetter);
  EXPECT_DOUBLE_EQ(six[1].comparison->delta, .3);
  const auto worse =
      rows({answers("base", "111111" + std::string(14, '0')), answers("new", wrong)});
  EXPECT_EQ(worse[1].comparison->verdict, Verdict::kWorse);
}

TEST(SummaryTest, LossesAreRatiosOfSumsAndLowerIsBetter) {
  const std::vector<Metric> metrics = {{"loss", IntervalKind::kBootstrap, true, false},
                                       {"perplexity", IntervalKind::kBootstrap, true, true}};
  Observed base{"base", {}}, better{"better", {}};
  double total = 0, tokens = 0;
  for (int item = 0; item < 30; ++item) {
    const double weight = 10 + item, nll = weight * (2 + item % 5 * 0.1);
    total += nll;
    tokens += weight;
    for (int32_t metric : {0, 1}) {
      base.observations.push_back({metric, item, {}, nll, weight});
      better.observations.push_back({metric, item, {}, nll - 0.05 * weight, weight});
    }
  }
  const auto found = rows({base, better}, metrics);
  ASSERT_EQ(found.size(), 4U);
  EXPECT_NEAR(found[0].value, total / tokens, 1e-12);
  EXPECT_NEAR(found[1].comparison->delta, -0.05, 1e-12);
  EXPECT_NEAR(found[1].comparison->interval->high, -0.05, 1e-9);
  EXPECT_EQ(found[1].comparison->verdict, Verdict::kBetter);
  EXPECT_NEAR(found[2].value, std::exp(total / tokens), 1e-9);
  // exp keeps order, so the ends of the interval are those of the loss, but for the interpolation
  // between two draws.
  EXPECT_NEAR(found[2].interval->low, std::exp(found[0].interval->low), 1e-6);
  EXPECT_EQ(found[3].comparison->verdict, Verdict::kBetter);
}

TEST(SummaryTest, OneUnitHasNoInterval) {
  const std::vector<Metric> metrics = {{"loss", IntervalKind::kBootstrap, true, false}};
  Observed base{"base", {{0, 0, {}, 10, 4}}}, other{"other", {{0, 0, {}, 9, 4}}};
  const auto found = rows({base, other}, metrics);
  EXPECT_FALSE(found[0].interval);
  EXPECT_EQ(found[0].kind, IntervalKind::kNone);
  EXPECT_EQ(found[1].comparison->verdict, Verdict::kNoDifference);
  EXPECT_DOUBLE_EQ(found[1].comparison->delta, -.25);
}

TEST(SummaryTest, AHandfulOfUnitsIsNoVerdict) {
  const std::vector<Metric> metrics = {{"loss", IntervalKind::kBootstrap, true, false}};
  for (const int64_t units : {5, 6}) {
    Observed base{"base", {}}, better{"better", {}};
    for (int64_t item = 0; item < units; ++item) {
      base.observations.push_back({0, item, {}, 10, 4});
      better.observations.push_back({0, item, {}, 9, 4});
    }
    const auto found = rows({base, better}, metrics);
    EXPECT_LT(found[1].comparison->interval->high, 0);
    EXPECT_EQ(found[1].comparison->n, units);
    EXPECT_EQ(found[1].comparison->verdict, units < 6 ? Verdict::kNoDifference : Verdict::kBetter);
    const auto notes = verdict_notes(found, .95);
    if (units < 6) {
      EXPECT_THAT(notes, ElementsAre("n = 5 is too few for a verdict at 95 %, which takes 6 at "
                                     "least: such rows say NO_DIFFERENCE whatever their interval; "
                                     "give more data"));
    } else {
      EXPECT_THAT(notes, IsEmpty());
    }
  }
}

// 2^(1-n) is below 0.01 from n = 8 on.
TEST(SummaryTest, WhyThereIsNoVerdictIsSaidOfAllRowsAtOnce) {
  const auto row = [](int64_t n, double delta, Verdict verdict) {
    ResultRow out;
    out.comparison = Comparison{delta, Interval{delta, delta}, verdict, n};
    return out;
  };
  const std::vector<ResultRow> few = {row(7, .5, Verdict::kNoDifference),
                                      row(3, .5, Verdict::kNoDifference),
                                      row(2, 0, Verdict::kNoDifference), ResultRow()};
  EXPECT_THAT(
      verdict_notes(few, .99),
      ElementsAre(HasSubstr("n = 3 to 7 are too few for a verdict at 99 %, which takes 8")));
  EXPECT_THAT(verdict_notes(std::vector{row(20, .5, Verdict::kBetter)}, .95), IsEmpty());
  // Five went one way and none the other: the bootstrap's interval leaves out 0 (see above).
  EXPECT_THAT(verdict_notes(std::vector{row(20, .25, Verdict::kNoDifference)}, .95),
              ElementsAre(HasSubstr("McNemar's exact test decided")));
}

TEST(SummaryTest, AStoppedSubjectIsComparedOnWhatBothHave) {
  const auto found = rows({answers("base", "1111000000"), answers("part", "0011")});
  EXPECT_DOUBLE_EQ(found[0].value, .4);
  EXPECT_DOUBLE_EQ(found[1].value, .5);
  EXPECT_DOUBLE_EQ(found[1].comparison->delta, -.5);  // 2 of 4 against 4 of the same 4
}

TEST(SummaryTest, GroupsHaveRowsInTheOrderTheyAppear) {
  const std::vector<Metric> metrics = {
      {"accuracy", IntervalKind::kWilson, false, false, {{}, {"length", "depth"}}}};
  Observed base{"base", {}};
  int64_t item = 0;
  for (const char* length : {"512", "1024"}) {
    for (const char* depth : {"0", "100"}) {
      base.observations.push_back(
          {0, item++, {{"length", length}, {"depth", depth}}, length[0] == '5' ? 1.0 : 0.0, 1});
    }
  }
  base.observations.push_back({0, item, {}, 1, 1});  // in no cell
  const auto found = rows({base}, metrics);
  ASSERT_EQ(found.size(), 5U);
  EXPECT_DOUBLE_EQ(found[0].value, .6);
  EXPECT_EQ(found[1].dims, (Dims{{"length", "512"}, {"depth", "0"}}));
  EXPECT_EQ(found[4].dims, (Dims{{"length", "1024"}, {"depth", "100"}}));
  const std::string map = heat_map(found, "accuracy", "base");
  EXPECT_EQ(map,
            "accuracy, base       512     1024 \n"
            "depth   0 %     ████ 100        0 \n"
            "depth 100 %     ████ 100        0 \n");
  EXPECT_EQ(heat_map(found, "other", "base"), "");
}

// What is compared later, from a file, is what would have been compared at once.
TEST(SummaryTest, ItemsFromAFileGiveTheRowsAgainBitForBit) {
  const std::vector<Metric> metrics = {
      {"accuracy", IntervalKind::kWilson, false, false, {{}, {"tag"}}},
      {"perplexity", IntervalKind::kBootstrap, true, true, {{}, {"tag"}, {"tag", "head"}}}};
  Observed base{"base", {}}, subject{"new", {}};
  for (int64_t item = 0; item < 24; ++item) {
    const Dims dims = {{"tag", item % 3 == 0 ? "a" : "b"}, {"head", "1"}};
    base.observations.push_back({0, item, dims, item % 5 == 0 ? 1.0 : 0.0, 1});
    subject.observations.push_back({0, item, dims, item % 2 == 0 ? 1.0 : 0.0, 1});
    base.observations.push_back({1, item, dims, 7.0 / static_cast<double>(item + 1), 3});
    subject.observations.push_back({1, item, dims, 6.1 / static_cast<double>(item + 1), 3});
  }
  const std::vector<Observed> observed = {base, subject};
  const auto read = statistics::parse_items(statistics::items_text(
      {.task = "task", .rows = item_rows(metrics, observed)}, size_t{1} << 20));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->rows.size(), 2U * (3 + 3)) << "all, a and b; none of single heads";
  int compared = 0;
  for (const ResultRow& row : rows(observed, metrics)) {
    if (!row.comparison || find(row.dims, "head") != nullptr) continue;
    const std::map<std::string, std::string> dims(row.dims.begin(), row.dims.end());
    const auto* one = statistics::find_row(*read, row.metric, dims, "base");
    const auto* other = statistics::find_row(*read, row.metric, dims, "new");
    ASSERT_NE(one, nullptr);
    ASSERT_NE(other, nullptr);
    const auto pairs = statistics::pairs_of(*one, *other);
    const auto found = statistics::compare(pairs.base, pairs.subject, one->rule, {});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->delta, row.comparison->delta);
    EXPECT_EQ(found->interval->low, row.comparison->interval->low);
    EXPECT_EQ(found->interval->high, row.comparison->interval->high);
    EXPECT_EQ(found->verdict, row.comparison->verdict);
    EXPECT_EQ(found->n, row.comparison->n);
    EXPECT_EQ(statistics::figure(other->numbers, other->rule), row.value);
    ++compared;
  }
  EXPECT_EQ(compared, 6);
}

TEST(ReportTextTest, RowsHaveTheNamesOfTheApi) {
  Evaluation evaluation;
  evaluation.rows = rows({answers("base", "10"), answers("new", "11")});
  evaluation.notes = {"few"};
  const auto json = nlohmann::json::parse(evaluation_as_json("task", evaluation, 7));
  EXPECT_EQ(json["task"], "task");
  EXPECT_EQ(json["complete"], true);
  EXPECT_EQ(json["seed"], 7);
  const auto& row = json["rows"][1];
  EXPECT_EQ(row["subject"], "new");
  EXPECT_EQ(row["metric"], "accuracy");
  EXPECT_EQ(row["value"], 1.0);
  EXPECT_EQ(row["interval"], "WILSON");
  EXPECT_EQ(row["confidence"], .95);
  EXPECT_EQ(row["n"], 2);
  EXPECT_EQ(row["delta"], .5);
  EXPECT_EQ(row["verdict"], "NO_DIFFERENCE");
  for (const char* key : {"low", "high", "delta_low", "delta_high", "dims"})
    EXPECT_TRUE(row.contains(key)) << key;
  EXPECT_FALSE(json["rows"][0].contains("delta"));
}

TEST(ReportTextTest, TableLeavesOutColumnsThatNothingFills) {
  const std::string alone = rows_as_table(rows({answers("base", "10")}));
  EXPECT_THAT(alone, HasSubstr("metric    subject  value   95 % interval"));
  EXPECT_EQ(alone.find("verdict"), std::string::npos);
  const std::string both = rows_as_table(rows({answers("base", "10"), answers("new", "11")}));
  EXPECT_THAT(both, HasSubstr("NO_DIFFERENCE"));
}

TEST(ReportTextTest, SamplesAreALineOfJsonWithoutWhatIsEmpty) {
  const auto json = nlohmann::json::parse(
      sample_as_json({.task = "answers", .subject = "base", .line = 3, .output = "a\n\xC3"}));
  EXPECT_EQ(json["line"], 3);
  EXPECT_EQ(json["output"], "a\n\uFFFD");  // cut inside a character
  EXPECT_FALSE(json.contains("logprobs"));
  EXPECT_FALSE(json.contains("dims"));
}

TEST(ReportTextTest, MarkdownHasTheTablesCells) {
  auto found = rows({answers("base", "0110")});
  found[0].dims = {{"tag", "a|b\nc"}};
  EXPECT_EQ(rows_as_markdown(found),
            "| metric | where | subject | value | 95 % interval | by | n |\n"
            "| --- | --- | --- | --- | --- | --- | --- |\n"
            "| accuracy | tag=a\\|b c | base | 0.5000 | 0.1500 – 0.8500 | WILSON | 4 |\n");
  EXPECT_EQ(rows_as_markdown({}), "");
}

}  // namespace
}  // namespace dex::evaluate
