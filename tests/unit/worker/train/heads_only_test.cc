// Jobs that end once their heads are chosen (PreviewHeadSelection): the same numbers as the whole
// job, and nothing else done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "services/base/sha256.h"
#include "tests/unit/worker/train/job_fixture.h"
#include "worker/train/selection.h"

namespace dex::train::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class HeadsOnlyTest : public JobTest {
 protected:
  // Rows of which some are held out, a threshold rule as the presets have it.
  JobSpec selecting(evaluate::Criterion criterion, const std::string& attempt) {
    write_rows(directory_ / "many.jsonl", tiny_rows(100, 30));
    JobSpec spec = this->spec(attempt);
    spec.training_path = directory_ / "many.jsonl";
    spec.validation_path.clear();
    spec.calibration = {.n_sequences = 6, .seq_length = 24, .skip_rows = 4};
    spec.heads.criterion = criterion;
    spec.heads.tau = 0.5;
    spec.heads.eta = 0.3;
    return spec;
  }
  json preview(JobSpec spec) {
    spec.heads_only = true;
    RecordingSession session;
    run(spec, session);
    return json::parse(bytes_of(spec.attempt_dir / "final/head_selection.json")).at(0);
  }
};

class SameHeadsTest : public HeadsOnlyTest,
                      public ::testing::WithParamInterface<evaluate::Criterion> {};

TEST_P(SameHeadsTest, ShowsWhatTheJobChoosesToTheBit) {
  const JobSpec job = selecting(GetParam(), "job");
  RecordingSession session;
  run(job, session);
  const json chosen = json::parse(bytes_of(job.attempt_dir / "head_selection.json")).at(0);
  const json shown = preview(selecting(GetParam(), "preview"));
  for (const char* key : {"rule", "calibration", "entropy", "importance", "entropy_unit",
                          "selected", "selected_ratio", "chosen_by", "warnings"})
    EXPECT_EQ(shown.at(key), chosen.at(key)) << key;
  EXPECT_EQ(shown.at("calibration").at("sequences"), 6);
  const double stability = shown.at("stability_ratio");
  EXPECT_GE(stability, 0);
  EXPECT_LE(stability, 1);
}

INSTANTIATE_TEST_SUITE_P(Measured, SameHeadsTest,
                         ::testing::Values(evaluate::Criterion::kEntropy,
                                           evaluate::Criterion::kImportance,
                                           evaluate::Criterion::kThreshold));

TEST_F(HeadsOnlyTest, TrainsNothingAndPublishesReportAndPicture) {
  JobSpec spec = selecting(evaluate::Criterion::kEntropy, "preview");
  spec.heads_only = true;
  RecordingSession session;
  const Published published = run(spec, session);
  EXPECT_THAT(session.phases,
              ElementsAre(Phase::kLoadingModel, Phase::kLoadingDataset, Phase::kValidating,
                          Phase::kSelectingHeads, Phase::kFinalizing));
  EXPECT_EQ(session.data("training_start").size(), 0u);
  EXPECT_EQ(published.path, (spec.attempt_dir / "final").string());
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(published.path))
    files.push_back(entry.path().filename());
  EXPECT_THAT(files,
              UnorderedElementsAre("head_selection.json", "head_selection.svg", "checksums.json"));
  const std::string manifest = bytes_of(spec.attempt_dir / "final/checksums.json");
  EXPECT_EQ(base::sha256_hex(manifest), published.manifest_sha256);
  EXPECT_EQ(json::parse(manifest).at("head_selection.json"),
            base::sha256_hex(bytes_of(spec.attempt_dir / "final/head_selection.json")));
  EXPECT_THAT(bytes_of(spec.attempt_dir / "final/head_selection.svg"),
              HasSubstr("Heads chosen before training"));
}

TEST_F(HeadsOnlyTest, SaysWithNumbersWhenTheRowsAreFewOrShort) {
  JobSpec spec = selecting(evaluate::Criterion::kEntropy, "few");
  spec.calibration = {.n_sequences = 1000, .seq_length = 24, .skip_rows = 24};
  const json warnings = preview(spec).at("warnings");
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_EQ(warnings[0].at("topic"), "calibration_small");
  EXPECT_THAT(warnings[0].at("evidence").get<std::string>(),
              HasSubstr("1000 of 24 tokens were asked for"));
  EXPECT_EQ(warnings[1].at("topic"), "calibration_short");
  EXPECT_THAT(warnings[1].at("evidence").get<std::string>(), HasSubstr("skip_rows 24"));
}

// The training job says it too, before it begins.
TEST_F(HeadsOnlyTest, AJobWarnsOfFewOrShortRowsAsItsPreviewDoes) {
  JobSpec spec = selecting(evaluate::Criterion::kEntropy, "few");
  spec.calibration = {.n_sequences = 1000, .seq_length = 24, .skip_rows = 24};
  RecordingSession session;
  run(spec, session);
  std::vector<std::string> codes;
  for (const json& warning : session.data("warning")) codes.push_back(warning.at("code"));
  EXPECT_THAT(codes, ::testing::IsSupersetOf({"calibration_small", "calibration_short"}));
}

// method.md §4.1: what rows without a counted row have is H/ln(i+1), never above 1; a tau in nats
// would be compared with it in silence.
TEST_F(HeadsOnlyTest, ATauInNatsNeedsRowsThatAreLongEnough) {
  for (const bool heads_only : {true, false}) {
    JobSpec spec = selecting(evaluate::Criterion::kThreshold, "nats");
    spec.heads_only = heads_only;
    spec.heads.entropy_unit = evaluate::EntropyUnit::kNats;
    spec.calibration.skip_rows = 24;  // of seq_length 24
    const Failure failure = failure_of(spec);
    EXPECT_EQ(failure.exit(), Exit::kBadSpec);
    EXPECT_THAT(failure.what(), HasSubstr("NATS needs a calibration row longer than skip_rows 24"));
    EXPECT_THAT(failure.what(), HasSubstr("give longer rows, a smaller skip_rows, or NORMALIZED"));
  }
  JobSpec normalized = selecting(evaluate::Criterion::kThreshold, "normalized");
  normalized.heads.entropy_unit = evaluate::EntropyUnit::kNormalized;
  normalized.calibration.skip_rows = 24;
  EXPECT_EQ(preview(normalized).at("entropy_unit"), "normalized");
  JobSpec longer = selecting(evaluate::Criterion::kThreshold, "longer");
  longer.heads.entropy_unit = evaluate::EntropyUnit::kNats;
  EXPECT_EQ(preview(longer).at("entropy_unit"), "nats");
}

// None of τ = 1000 and all of η = 1000.
TEST_F(HeadsOnlyTest, WarnsOfNoHeadAndOfNearlyAll) {
  JobSpec none = selecting(evaluate::Criterion::kThreshold, "none");
  none.heads.tau = 1000;
  none.heads.eta = 0;
  const json empty = preview(none);
  EXPECT_EQ(empty.at("selected_ratio"), 0.0);
  EXPECT_EQ(empty.at("warnings").at(0).at("topic"), "selection_empty");
  EXPECT_EQ(empty.at("stability_ratio"), 1.0) << "both halves choose none";
  JobSpec all = selecting(evaluate::Criterion::kThreshold, "all");
  all.heads.eta = 1000;
  const json wide = preview(all);
  EXPECT_EQ(wide.at("selected_ratio"), 1.0);
  EXPECT_EQ(wide.at("warnings").at(0).at("topic"), "selection_wide");
}

TEST_F(HeadsOnlyTest, NothingIsMeasuredForAllHeads) {
  const json report = preview(selecting(evaluate::Criterion::kAll, "all"));
  EXPECT_EQ(report.at("selected_ratio"), 1.0);
  EXPECT_TRUE(report.at("calibration").is_null());
  EXPECT_TRUE(report.at("stability_ratio").is_null());
  EXPECT_TRUE(report.at("warnings").empty());
}

TEST_F(HeadsOnlyTest, RefusesRowsThatCannotBeMeasured) {
  for (const bool heads_only : {true, false}) {
    JobSpec token = selecting(evaluate::Criterion::kEntropy, "token");
    token.heads_only = heads_only;
    token.calibration.seq_length = 1;
    EXPECT_THAT(failure_of(token).what(), HasSubstr("no calibration row has more than one token"));
    EXPECT_EQ(failure_of(token).exit(), Exit::kBadSpec);
    JobSpec label = selecting(evaluate::Criterion::kImportance, "label");
    label.heads_only = heads_only;
    label.calibration.seq_length = 1;
    EXPECT_THAT(failure_of(label).what(), HasSubstr("raise seq_length, or take criterion ENTROPY"));
  }
}

TEST(OverlapTest, IsTheSharedPartOfTheUnion) {
  EXPECT_EQ(overlap({{0, 1}, {2}}, {{1, 3}, {2}}), 2.0 / 4.0);
  EXPECT_EQ(overlap({{0}}, {{1}}), 0.0);
  EXPECT_EQ(overlap({{}, {}}, {{}, {}}), 1.0);
}

}  // namespace
}  // namespace dex::train::testing
