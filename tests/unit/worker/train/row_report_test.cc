// Which rows make the held-out loss what it is (api.md §4: group_loss, worst_rows; §12: C06).
#include "worker/train/row_report.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <set>

#include "tests/unit/worker/train/job_fixture.h"

namespace dex::train::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RowReportTest, LossesByTagLanguageAndLength) {
  const std::vector<HeldOutRow> rows = {
      {1, "law", "", 10}, {2, "prose", "", 20}, {3, "law", "", 40}, {4, "", "", 16}};
  const std::vector<RowLoss> losses = {{8, 4}, {10, 10}, {12, 6}, {3, 1}};
  const json data = json::parse(group_loss_json(7, rows, losses));
  EXPECT_EQ(data.at("step"), 7);
  const json want = {
      {{"by", "tag"}, {"name", "law"}, {"loss", 2.0}, {"rows", "2"}, {"tokens", "50"}},
      {{"by", "tag"}, {"name", "prose"}, {"loss", 1.0}, {"rows", "1"}, {"tokens", "20"}},
      {{"by", "tag"}, {"name", "(none)"}, {"loss", 3.0}, {"rows", "1"}, {"tokens", "16"}},
      {{"by", "length"}, {"name", "64"}, {"loss", 2.0}, {"rows", "1"}, {"tokens", "40"}},
      {{"by", "length"}, {"name", "16"}, {"loss", 11.0 / 5}, {"rows", "2"}, {"tokens", "26"}},
      {{"by", "length"}, {"name", "32"}, {"loss", 1.0}, {"rows", "1"}, {"tokens", "20"}}};
  EXPECT_EQ(data.at("groups"), want) << "no row has a language";
  EXPECT_EQ(
      group_loss_text(7, rows, losses),
      "held-out loss at step 7 by tag: law 2, prose 1, (none) 3; by length: 64 2, 16 2.2, 32 1");
}

TEST(RowReportTest, WhatIsNoNumberIsWorst) {
  const double nan = std::nan("");
  const std::vector<RowLoss> losses = {{2, 1}, {nan, 1}, {9, 2}, {1, 1}};
  EXPECT_THAT(worst_rows(losses, 3), ElementsAre(1, 2, 0));
  const std::vector<HeldOutRow> rows = {{5, "", "", 3}, {6, "", "", 3}, {9, "t", "en", 3}, {11}};
  const json data = json::parse(worst_rows_json(4, "training_file", rows, losses));
  EXPECT_EQ(data.at("file"), "training_file");
  EXPECT_EQ(data.at("rows").at(0).at("loss"), "NaN");
  EXPECT_EQ(data.at("rows").at(0).at("line"), "6");
  EXPECT_EQ(
      data.at("rows").at(1),
      (json{{"line", "9"}, {"loss", 4.5}, {"tokens", "3"}, {"tag", "t"}, {"language", "en"}}));
  EXPECT_EQ(worst_rows_text(4, "training_file", rows, losses),
            "highest held-out losses at step 4: line 6 of training_file NaN, line 9 4.5, line 5 2");
}

class RowReportJobTest : public JobTest {};

// One row in the middle of the held-out file has a tag of its own.
TEST_F(RowReportJobTest, NamesRowsByFileAndLineTheWorstFirst) {
  auto rows = tiny_rows(12, 40, 78);
  for (size_t i = 0; i < rows[6].size(); ++i)
    rows[6][i] = static_cast<int32_t>((i * i * 31 + 17 * i + 5) % 97);
  std::ofstream out(directory_ / "validation.jsonl");
  for (size_t r = 0; r < rows.size(); ++r) {
    out << json{{"input_ids", rows[r]}, {"labels", rows[r]}, {"tag", r == 6 ? "odd" : "plain"}}
               .dump()
        << '\n';
  }
  out.close();
  JobSpec spec = this->spec();
  spec.hyperparameters.max_steps = 60;
  RecordingSession session;
  run(spec, session);
  const auto evaluated = session.data("eval_complete");
  const auto worst = session.data("worst_rows"), groups = session.data("group_loss");
  ASSERT_EQ(worst.size(), evaluated.size());
  ASSERT_EQ(groups.size(), evaluated.size());
  EXPECT_EQ(worst.back().at("file"), "validation_file");
  double odd = 0, before = std::numeric_limits<double>::infinity();
  for (const json& group : groups.back().at("groups")) {
    if (group.at("name") == "odd") odd = group.at("loss");
  }
  for (const json& row : worst.back().at("rows")) {
    EXPECT_LE(row.at("loss"), before);
    before = row.at("loss");
    EXPECT_EQ(row.at("tag"), row.at("line") == "7" ? "odd" : "plain");
    if (row.at("line") == "7") EXPECT_NEAR(row.at("loss"), odd, 1e-9) << "its group has no other";
  }
  // Every row once, and together they are the loss that the evaluation told: each token but a row's
  // first counts the same here.
  for (size_t e = 0; e < evaluated.size(); ++e) {
    double sum = 0, weight = 0;
    std::set<std::string> lines;
    for (const json& row : worst[e].at("rows")) {
      const double tokens = std::stod(row.at("tokens").get<std::string>()) - 1;
      sum += tokens * row.at("loss").get<double>();
      weight += tokens;
      lines.insert(row.at("line").get<std::string>());
    }
    EXPECT_EQ(lines.size(), 12u);
    EXPECT_EQ(worst[e].at("step"), evaluated[e].at("step"));
    EXPECT_NEAR(sum / weight, evaluated[e].at("validLoss").get<double>(), 1e-9);
  }
}

TEST_F(RowReportJobTest, RowsHeldOutOfTheTrainingFileKeepTheirLines) {
  JobSpec spec = this->spec();
  spec.validation_path.clear();
  spec.validation_split = 0.2;
  RecordingSession session;
  run(spec, session);
  const auto worst = session.data("worst_rows");
  ASSERT_FALSE(worst.empty());
  EXPECT_EQ(worst.back().at("file"), "training_file");
  const auto all = tiny_rows(60, 40);
  for (const json& row : worst.back().at("rows")) {
    const auto line = std::stoul(row.at("line").get<std::string>());
    ASSERT_GE(line, 1u);
    ASSERT_LE(line, all.size());
    EXPECT_EQ(row.at("tokens"), std::to_string(all[line - 1].size())) << "line " << line;
  }
}

}  // namespace
}  // namespace dex::train::testing
