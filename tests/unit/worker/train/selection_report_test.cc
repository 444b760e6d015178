#include "worker/train/selection_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace dex::train {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// The fixture of method.md §11.6 as a job has it.
JobSpec threshold(double tau, double eta) {
  JobSpec spec;
  spec.seed = 11;
  spec.heads.criterion = evaluate::Criterion::kThreshold;
  spec.heads.tau = tau;
  spec.heads.eta = eta;
  return spec;
}

Selection selected(const JobSpec& spec) {
  Selection out;
  out.scores.entropy_nats = {{2.0, 1.5, 2.9, 1.9, 2.1, 3.3, 1.1, 2.4}};
  out.scores.entropy_normalized = {std::vector<double>(8, 0.5)};
  out.scores.importance = {{.20, .012, .035, .30, .004, .12, .40, .024}};
  out.scores.sequences = 8;
  out.scores.tokens = 2048;
  out.scores.skip_rows = 32;
  out.heads = evaluate::select_heads(spec.heads, out.scores, 1, 8);
  out.heads_a_layer = 8;
  out.ratio = evaluate::selected_ratio(out.heads, 8);
  return out;
}

TEST(SelectionReportTest, SaysRuleCalibrationScoresSetsSharesAndReasons) {
  const JobSpec spec = threshold(1.0, .03);
  const Selection selection = selected(spec);
  const json report = json::parse(selection_report(spec, selection, 0));
  EXPECT_EQ(report.at("rule"), json({{"criterion", "THRESHOLD"},
                                     {"tau", 1.0},
                                     {"eta", 0.03},
                                     {"entropy_unit", "ZSCORE"},
                                     {"contribution_unit", "L2NORM"}}));
  EXPECT_EQ(report.at("calibration"), json({{"source", "training_file"},
                                            {"n_sequences", 8},
                                            {"seq_length", 512},
                                            {"sequences", 8},
                                            {"tokens", 2048},
                                            {"skip_rows", 32},
                                            {"normalized_because_short", false},
                                            {"seed", 11}}));
  EXPECT_EQ(report.at("entropy_unit"), "nats");
  EXPECT_EQ(report.at("entropy").get<evaluate::HeadTable>(), selection.scores.entropy_nats);
  EXPECT_EQ(report.at("importance").get<evaluate::HeadTable>(), selection.scores.importance);
  EXPECT_EQ(report.at("selected"), json::parse("[[1,2,4,5]]"));
  EXPECT_EQ(report.at("selected_ratio"), 0.5);
  EXPECT_EQ(report.at("selected_ratio_by_layer"), json::parse("[0.5]"));
  const json reasons = report.at("chosen_by").at(0);
  EXPECT_EQ(reasons, json::parse(R"([null,"contribution","entropy",null,"contribution","entropy",
                                    null,null])"));
  EXPECT_TRUE(report.at("warnings").empty());
}

// A head within the margin stays chosen though neither condition holds (method.md §3.4), and one
// that only just fulfils a condition is not chosen yet.
TEST(SelectionReportTest, TellsWhatHysteresisKept) {
  const JobSpec spec = threshold(1.2, 0.0);
  Selection selection = selected(spec);
  selection.heads = evaluate::reselect_heads(spec.heads, selection.scores, {{2, 5}}, 8);
  const json kept = json::parse(selection_report(spec, selection, 20)).at("chosen_by").at(0);
  EXPECT_EQ(kept.at(2), "kept");
  EXPECT_EQ(kept.at(5), "entropy");
  const JobSpec lower = threshold(1.1, 0.0);
  selection.heads = evaluate::reselect_heads(lower.heads, selection.scores, {{5}}, 8);
  const json not_yet = json::parse(selection_report(lower, selection, 20)).at("chosen_by").at(0);
  EXPECT_TRUE(not_yet.at(2).is_null());
}

TEST(SelectionReportTest, OtherCriteriaNameThemselvesAndTheirParameters) {
  JobSpec spec;
  Selection selection = selected(spec);
  json report = json::parse(selection_report(spec, selection, 0));
  EXPECT_EQ(report.at("rule"), json({{"criterion", "ENTROPY"}, {"fraction", 0.5}}));
  EXPECT_EQ(report.at("chosen_by").at(0).at(5), "entropy");
  spec.heads.criterion = evaluate::Criterion::kExplicit;
  spec.heads.heads = {{3}};
  selection.heads = {{3}};
  selection.scores = {};
  report = json::parse(selection_report(spec, selection, 0));
  EXPECT_EQ(report.at("rule"), json::parse(R"({"criterion":"EXPLICIT","heads":[[3]]})"));
  EXPECT_TRUE(report.at("calibration").is_null());
  EXPECT_EQ(report.at("chosen_by").at(0).at(3), "explicit");
}

TEST(SelectionReportTest, WarnsOfNothingAndOfNearlyEverythingWithBetterThresholds) {
  for (const auto& [spec, topic] : {std::pair(threshold(9, 0), "selection_empty"),
                                    std::pair(threshold(-0.9, .03), "selection_wide")}) {
    const json warnings = json::parse(selection_report(spec, selected(spec), 0)).at("warnings");
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_EQ(warnings[0].at("topic"), topic);
    EXPECT_THAT(warnings[0].at("suggestion").get<std::string>(), HasSubstr("select"));
  }
}

TEST(SelectionReportTest, WarnsOfFewAndOfShortCalibrationRows) {
  const JobSpec spec = threshold(1.0, .03);
  Selection selection = selected(spec);
  selection.scores.sequences = 3;
  selection.scores.short_sequences = true;
  const json warnings = json::parse(selection_report(spec, selection, 0)).at("warnings");
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_EQ(warnings[0].at("topic"), "calibration_small");
  EXPECT_EQ(warnings[0].at("evidence"),
            "3 sequences with 2048 tokens were measured, 8 of 512 tokens were asked for");
  EXPECT_EQ(warnings[1].at("topic"), "calibration_short");
}

// A branch that is all that is trained keeps its heads where the rule would leave it none.
TEST(KeepSomeTest, OnlyForDexOnlyWithoutAFloorAndWithoutAHead) {
  JobSpec spec = threshold(9, 0);
  const evaluate::HeadSets present = {{1, 6}};
  Selection none = selected(spec);
  ASSERT_EQ(none.ratio, 0);
  EXPECT_FALSE(keep_some(spec, present, none));  // K, V and O train on without a branch
  spec.dex.train = model::Train::kDexOnly;
  Selection some = selected(threshold(1.0, .03));
  EXPECT_FALSE(keep_some(spec, present, some));
  EXPECT_EQ(some.ratio, 0.5);
  EXPECT_TRUE(keep_some(spec, present, none));
  EXPECT_EQ(none.heads, present);
  EXPECT_EQ(none.ratio, 0.25);
  spec.dex.soft_floor = 0.1;  // then the branch acts on the others
  Selection floor = selected(spec);
  EXPECT_FALSE(keep_some(spec, present, floor));
}

TEST(SelectionPictureTest, ShowsTheLastSelection) {
  const JobSpec spec = threshold(1.0, .03);
  const json first = json::parse(selection_report(spec, selected(spec), 0));
  json second = first;
  second["step"] = 5;
  const std::string svg = selection_picture(json::array({first, second}).dump());
  EXPECT_THAT(svg, HasSubstr("Heads chosen before step 6"));
  EXPECT_THAT(svg, HasSubstr("layer 0, head 5: 3.3 nats, chosen"));
  EXPECT_EQ(selection_picture("[]"), "");
}

}  // namespace
}  // namespace dex::train
