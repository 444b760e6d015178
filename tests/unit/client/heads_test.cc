#include "client/cli/heads.h"

#include <gmock/gmock.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/head_grid.h"

namespace dex::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(MakePreviewTest, FlagsBecomeTheRequest) {
  PreviewFlags flags;
  flags.model = "small";
  flags.texts = {"a", "b, c"};
  flags.preset = "code";
  flags.criterion = "threshold";
  flags.seed = "5";
  flags.sets = {"tau=1.25", "calibration.n_sequences=4", "entropy_unit=nats"};
  const auto request = make_preview(flags);
  ASSERT_TRUE(request.ok()) << request.status().to_string();
  EXPECT_EQ(request->model(), "small");
  EXPECT_EQ(request->file(), "");
  EXPECT_THAT(request->texts(), ElementsAre("a", "b, c"));
  EXPECT_EQ(request->preset(), "code");
  EXPECT_EQ(request->seed(), 5);
  const auto& heads = request->head_selection();
  EXPECT_EQ(heads.criterion(), v1::HeadSelection::CRITERION_THRESHOLD);
  EXPECT_EQ(heads.tau(), 1.25);
  EXPECT_EQ(heads.calibration().n_sequences(), 4U);
  EXPECT_EQ(heads.entropy_unit(), v1::HeadSelection::ENTROPY_UNIT_NATS);
  EXPECT_FALSE(heads.has_eta()) << "left to the preset";
  PreviewFlags plain;
  plain.model = "small";
  EXPECT_FALSE(make_preview(plain)->has_head_selection());
}

TEST(MakePreviewTest, WhatIsUnknownIsSaid) {
  PreviewFlags flags;
  flags.criterion = "loudest";
  EXPECT_THAT(make_preview(flags).status().message(), HasSubstr("entropy"));
  flags.criterion = "";
  flags.sets = {"tao=1"};
  EXPECT_THAT(make_preview(flags).status().message(), HasSubstr("tau"));
  flags.sets = {"tau"};
  EXPECT_THAT(make_preview(flags).status().message(), HasSubstr("path=value"));
}

TEST(PreviewTextTest, ShowsGridsThenWhatWasMeasuredStabilityAndWarnings) {
  v1::HeadSelectionReport report;
  report.set_criterion("ENTROPY");
  report.set_selected_heads(1);
  report.set_selected_ratio(0.5);
  auto& layer = *report.add_layers();
  layer.add_entropy(1);
  layer.add_entropy(3);
  layer.add_selected(1);
  layer.add_chosen_by("entropy");
  layer.set_selected_ratio(0.5);
  report.set_stability_ratio(0.75);
  report.mutable_calibration()->set_sequences(3);
  report.mutable_calibration()->set_tokens(120);
  report.mutable_calibration()->set_skip_rows(32);
  report.mutable_calibration()->set_entropy_unit("nats");
  report.mutable_calibration()->set_seed(5);
  report.mutable_calibration()->set_source("training_file");
  report.add_warnings("calibration_small: 3 of 8");
  EXPECT_EQ(preview_text(report),
            "ENTROPY chose 1 heads, 50 % of all, before training; chosen ones in brackets\n"
            "\n"
            "entropy: 1 · to █ 3\n"
            "layer  0  1\n"
            "    0  · [█]\n"
            "\n"
            "chosen by: 1 entropy; share by layer, %: 50\n"
            "measured on 3 sequences with 120 tokens of the training file, seed 5; entropy in nats "
            "from row 32 on\n"
            "stability: the two halves of these sequences agree on 75 % of the heads that either "
            "chooses\n"
            "warning: calibration_small: 3 of 8\n");
}

// method.md §3.4, §4.9: a job that chose again says what each time changed, and what chose each
// head.
TEST(SelectionTextTest, TellsReasonsSharesAndEveryReselection) {
  v1::HeadSelectionReport report;
  EXPECT_EQ(selection_text(report), "");
  const std::vector<std::pair<std::vector<std::string>, double>> layers = {
      {std::vector<std::string>{"entropy", "both"}, 0.5}, {std::vector<std::string>{"kept"}, 0.25}};
  for (const auto& [reasons, ratio] : layers) {
    auto& layer = *report.add_layers();
    for (const std::string& reason : reasons) layer.add_chosen_by(reason);
    layer.set_selected_ratio(ratio);
  }
  report.add_selections()->add_entered()->add_heads(2);
  auto& second = *report.add_selections();
  second.set_step(40);
  second.set_selected_heads(3);
  second.set_selected_ratio(0.38);
  auto& entered = *second.add_entered();
  entered.set_layer(1);
  entered.add_heads(0);
  entered.add_heads(3);
  EXPECT_EQ(selection_text(report),
            "\n"
            "chosen by: 1 both, 1 entropy, 1 kept; share by layer, %: 50 25\n"
            "chosen again before step 41: 3 heads, 38 %; entered layer 1: 0 3; left none\n");
}

// Of what a branch takes away, where none acts on a head.
TEST(ScoreGridTest, MarksScoresThatAreNotDefined) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(score_grid_text("directions_below_half of night", {{1, none}, {none, 3}}),
            "directions_below_half of night: 1 · to █ 3\n"
            "layer  0  1\n"
            "    0  ·  ? \n"
            "    1  ?  █ \n");
}

}  // namespace
}  // namespace dex::cli
