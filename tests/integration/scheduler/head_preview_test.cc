// PreviewHeadSelection from request to report, with a worker that only this test plays.
#include <gmock/gmock.h>

#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "services/base/files.h"
#include "tests/integration/scheduler/scheduler_fixture.h"
#include "tests/support/eventually.h"

namespace dex::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Reply = base::Result<v1::HeadSelectionReport>;

constexpr const char* kReport = R"([{
  "step": 0, "rule": {"criterion": "THRESHOLD", "tau": 1.5},
  "calibration": {"source": "training_file", "sequences": 3, "tokens": 120, "skip_rows": 8,
                  "seed": 7},
  "entropy_unit": "nats", "entropy": [[0.25, 1.5], [2.0, 0.125]], "importance": [[1, 2], [3, 4]],
  "selected": [[1], []], "selected_ratio": 0.25, "stability_ratio": 0.5,
  "selected_ratio_by_layer": [0.5, 0], "chosen_by": [[null, "both"], [null, null]],
  "warnings": [{"topic": "calibration_small", "evidence": "3 of 8", "suggestion": "more rows"}]}])";

constexpr const char* kSvg = "<svg>heads</svg>";

class HeadPreviewTest : public SchedulerTest {
 protected:
  HeadPreviewTest() { enlist(); }

  static v1::PreviewHeadSelectionRequest of_texts() {
    v1::PreviewHeadSelectionRequest request;
    request.set_model("small-model");
    request.add_texts("one \"text\"\nof two lines");
    request.add_texts("another");
    return request;
  }
  // Each call waits for its worker, so it has a thread.
  std::future<Reply> ask(v1::PreviewHeadSelectionRequest request, int64_t timeout_ms = 30'000) {
    return std::async(std::launch::async, [this, request, timeout_ms] {
      return call(*jobs_, &JobStub::PreviewHeadSelection, request, timeout_ms);
    });
  }
  std::string publish(const iv1::ClaimedJob& job) { return publish_files(job, "w1", of_report()); }
  static FileContents of_report() {
    return {{"head_selection.json", kReport}, {"head_selection.svg", kSvg}};
  }
  // What the client hears of a worker that ends with `code`.
  base::Status end(const v1::PreviewHeadSelectionRequest& request, const std::string& code) {
    auto reply = ask(request);
    finish(claimed(), iv1::OUTCOME_FAIL_FINAL, code);
    return reply.get().status();
  }
  void refused(const v1::PreviewHeadSelectionRequest& request, const std::string& reason,
               const std::string& field) {
    expect_refused(call(*jobs_, &JobStub::PreviewHeadSelection, request).status(), reason, field);
  }
};

TEST_F(HeadPreviewTest, IsOnlyGivenToAWorkerThatHasItsModel) {
  enlist("w2", {"other-model"});
  auto asked = ask(of_texts());
  EXPECT_FALSE(claim("w2", 1'500).has_job());
  const auto job = claimed();
  EXPECT_EQ(publish(job), "SUCCEEDED");
  EXPECT_TRUE(asked.get().ok());
}

TEST_F(HeadPreviewTest, AsksAWorkerAsAJobWouldAndHandsItsReportOn) {
  v1::PreviewHeadSelectionRequest request;
  request.set_model("small-model");
  request.set_file(upload_good());
  request.set_preset("code");
  request.set_seed(7);
  request.mutable_head_selection()->set_tau(1.5);
  auto reply = ask(request);
  const auto job = claimed();
  EXPECT_EQ(job.kind(), "head_selection");
  EXPECT_TRUE(job.job_id().starts_with("heads-")) << job.job_id();
  EXPECT_EQ(job.adapter_id(), "");
  EXPECT_EQ(job.training_input().file(), request.file());
  // What the trainer selects by is what a job with these settings has.
  v1::CreateFineTuningJobRequest whole;
  *whole.mutable_spec() = spec(request.file());
  whole.mutable_spec()->set_seed(7);
  whole.mutable_spec()->mutable_dex()->set_preset("code");
  whole.mutable_spec()->mutable_dex()->mutable_head_selection()->set_tau(1.5);
  whole.set_validate_only(true);
  const auto resolved = create(whole);
  ASSERT_TRUE(resolved.ok()) << resolved.status().to_string();
  const auto& effective = resolved->effective_config().spec();
  EXPECT_EQ(job.spec().seed(), effective.seed());
  EXPECT_EQ(job.spec().validation_split(), effective.validation_split());
  EXPECT_EQ(job.spec().dex().head_selection().SerializeAsString(),
            effective.dex().head_selection().SerializeAsString());
  const auto& mine = job.spec().hyperparameters();
  const auto& whole_job = effective.hyperparameters();
  EXPECT_EQ(mine.max_seq_length(), whole_job.max_seq_length());
  EXPECT_EQ(mine.truncation(), whole_job.truncation());
  EXPECT_EQ(mine.train_on_inputs(), whole_job.train_on_inputs());
  EXPECT_EQ(publish(job), "SUCCEEDED");

  const Reply report = reply.get();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->criterion(), "THRESHOLD");
  ASSERT_EQ(report->layers_size(), 2);
  EXPECT_THAT(report->layers(0).entropy(), ElementsAre(0.25, 1.5));
  EXPECT_THAT(report->layers(1).importance(), ElementsAre(3, 4));
  EXPECT_THAT(report->layers(0).selected(), ElementsAre(1U));
  EXPECT_EQ(report->selected_heads(), 1U);
  EXPECT_EQ(report->selected_ratio(), 0.25);
  EXPECT_THAT(report->layers(0).chosen_by(), ElementsAre("both"));
  EXPECT_THAT(report->layers(1).chosen_by(), IsEmpty());
  EXPECT_EQ(report->layers(0).selected_ratio(), 0.5);
  EXPECT_EQ(report->layers(1).selected_ratio(), 0);
  EXPECT_EQ(report->calibration().source(), "training_file");
  ASSERT_EQ(report->selections_size(), 1);
  EXPECT_EQ(report->selections(0).entered(0).layer(), 0U);
  EXPECT_THAT(report->selections(0).entered(0).heads(), ElementsAre(1U));
  EXPECT_EQ(report->stability_ratio(), 0.5);
  EXPECT_EQ(report->calibration().tokens(), 120);
  EXPECT_EQ(report->calibration().seed(), 7);
  EXPECT_THAT(report->warnings(), ElementsAre("calibration_small: 3 of 8. Try: more rows"));
  EXPECT_EQ(report->head_selection().tau(), 1.5);
  EXPECT_TRUE(report->head_selection().has_eta()) << "the preset's";
  EXPECT_FALSE(report->has_picture()) << "nobody asked for it";

  const auto jobs = call(*jobs_, &JobStub::ListFineTuningJobs, v1::ListFineTuningJobsRequest{});
  EXPECT_EQ(jobs->jobs_size(), 0) << "a preview is no job to see";
  EXPECT_THAT(http("/metrics"), HasSubstr(R"(kind="head_selection",outcome="succeeded")"));
}

TEST_F(HeadPreviewTest, TextsBecomeRowsOfWhichNoneIsHeldOut) {
  auto reply = ask(of_texts());
  const auto job = claimed();
  EXPECT_EQ(job.spec().validation_split(), 0);
  EXPECT_EQ(job.spec().hyperparameters().truncation(), v1::Hyperparameters::TRUNCATION_CHUNK);
  EXPECT_EQ(job.training_input().path(), "jobs/default/" + job.job_id() + "/texts.jsonl");
  const auto rows = base::read_file(directory_ / "data" / job.training_input().path(), 1 << 20);
  ASSERT_TRUE(rows.ok()) << rows.status().to_string();
  const size_t end = rows->find('\n');
  EXPECT_EQ(nlohmann::json::parse(rows->substr(0, end)).at("text"), "one \"text\"\nof two lines");
  EXPECT_EQ(nlohmann::json::parse(rows->substr(end + 1)).at("text"), "another");
  publish(job);
  EXPECT_TRUE(reply.get().ok());
}

TEST_F(HeadPreviewTest, ThePictureComesWhenItIsAskedFor) {
  auto request = of_texts();
  request.set_with_picture(true);
  auto reply = ask(request);
  publish(claimed());
  const Reply report = reply.get();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->picture().name(), "head_selection.svg");
  EXPECT_EQ(report->picture().svg(), kSvg);
}

// The trainer leaves both beside the artefact; its log ends with the last selection.
TEST_F(HeadPreviewTest, AJobShowsItsLastSelectionWithItsPicture) {
  const auto get_with = [this](const std::string& id, bool heads) {
    v1::GetFineTuningJobRequest request;
    request.set_id(id);
    request.set_with_head_selection(heads);
    return call(*jobs_, &JobStub::GetFineTuningJob, request);
  };
  const auto made = create_good();
  const auto job = claimed();
  const auto attempt = directory_ / "data" / job.attempt_dir();
  auto log = nlohmann::json::parse(kReport);
  log[0].erase("stability_ratio");  // a job does not choose twice
  log.push_back(log[0]);
  log[1]["step"] = 20;
  log[1]["selected"] = nlohmann::json::parse("[[], [0]]");
  log[1]["chosen_by"] = nlohmann::json::parse(R"([[null, null], ["entropy", null]])");
  log.push_back(log[0]);
  log[2]["step"] = 40;
  log[2]["selected_ratio"] = 0.75;
  log[2]["selected"] = nlohmann::json::parse("[[0, 1], [0]]");
  log[2]["chosen_by"] = nlohmann::json::parse(R"([["contribution", "both"], ["kept", null]])");
  std::filesystem::create_directories(attempt);
  std::ofstream(attempt / "head_selection.json") << log;
  std::ofstream(attempt / "head_selection.svg") << kSvg;
  EXPECT_FALSE(get_with(made.id(), true)->has_head_selection()) << "not before it has succeeded";
  ASSERT_EQ(finish_well(job), "SUCCEEDED");
  EXPECT_FALSE(get_with(made.id(), false)->has_head_selection());
  const auto found = get_with(made.id(), true);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  const auto& report = found->head_selection();
  EXPECT_EQ(report.step(), 40U);
  EXPECT_EQ(report.selected_heads(), 3U);
  EXPECT_FALSE(report.has_stability_ratio());
  EXPECT_THAT(report.layers(0).chosen_by(), ElementsAre("contribution", "both"));
  EXPECT_THAT(report.layers(1).chosen_by(), ElementsAre("kept"));
  // The first selection, then what each later one changed: 1 of layer 0 leaves and comes back.
  ASSERT_EQ(report.selections_size(), 3);
  const auto& second = report.selections(1);
  EXPECT_EQ(second.step(), 20U);
  EXPECT_EQ(second.selected_heads(), 1U);
  ASSERT_EQ(second.entered_size(), 1);
  EXPECT_EQ(second.entered(0).layer(), 1U);
  EXPECT_THAT(second.entered(0).heads(), ElementsAre(0U));
  ASSERT_EQ(second.left_size(), 1);
  EXPECT_EQ(second.left(0).layer(), 0U);
  EXPECT_THAT(second.left(0).heads(), ElementsAre(1U));
  const auto& third = report.selections(2);
  EXPECT_EQ(third.selected_ratio(), 0.75);
  ASSERT_EQ(third.entered_size(), 1);
  EXPECT_THAT(third.entered(0).heads(), ElementsAre(0U, 1U));
  EXPECT_EQ(third.left_size(), 0);
  EXPECT_EQ(report.picture().svg(), kSvg);
  EXPECT_EQ(report.calibration().seed(), 7);

  std::ofstream(attempt / "head_selection.json") << "{";
  EXPECT_EQ(get_with(made.id(), true).status().reason(), "ARTIFACT_CORRUPT");
  std::filesystem::remove(attempt / "head_selection.json");  // as of a job without a branch
  EXPECT_FALSE(get_with(made.id(), true)->has_head_selection());
}

TEST_F(HeadPreviewTest, WhatIsNotWhatWasPublishedIsNotShown) {
  auto reply = ask(of_texts());
  auto files = of_report();
  files["checksums.json"] = checksums_of(files);
  files["head_selection.json"] = "[]";
  publish_files(claimed(), "w1", files);
  EXPECT_EQ(reply.get().status().reason(), "ARTIFACT_CORRUPT");
}

TEST_F(HeadPreviewTest, FailuresComeBackInTheWordsOfTheRequest) {
  const auto texts = end(of_texts(), "invalid_training_file");
  EXPECT_EQ(texts.reason(), "INVALID_FIELD") << texts.to_string();
  EXPECT_EQ(texts.violations().at(0).field, "texts");
  auto request = of_texts();
  request.clear_texts();
  request.set_file(upload_good());
  EXPECT_EQ(end(request, "invalid_training_file").reason(), "FILE_INVALID");
  EXPECT_EQ(end(request, "invalid_hyperparameter").reason(), "INVALID_FIELD");
  EXPECT_EQ(end(request, "internal").code(), base::Code::kInternal);
}

TEST_F(HeadPreviewTest, AClientThatGoesAwayTakesItsPreviewAlong) {
  auto waiting = ask(of_texts(), 1'500);
  EXPECT_EQ(waiting.get().status().code(), base::Code::kDeadlineExceeded);
  EXPECT_TRUE(support::eventually([&] {
    return http("/metrics").find(R"(kind="head_selection",outcome="cancelled")") !=
           std::string::npos;
  }));
  EXPECT_FALSE(claim().has_job());
  // One that runs is ordered to stop.
  auto running = ask(of_texts(), 3'000);
  const auto job = claimed();
  EXPECT_EQ(running.get().status().code(), base::Code::kDeadlineExceeded);
  EXPECT_TRUE(is_told_to_stop(job));
}

TEST_F(HeadPreviewTest, RefusesByFieldBeforeAnyWorkerIsAsked) {
  auto none = of_texts();
  none.clear_texts();
  refused(none, "MISSING_FIELD", "file");
  auto both = of_texts();
  both.set_file("file-1");
  refused(both, "CONFLICTING_FIELDS", "texts");
  auto blank = of_texts();
  blank.set_texts(1, " \n");
  refused(blank, "INVALID_FIELD", "texts[1]");
  auto many = of_texts();
  for (int i = 0; i < 63; ++i) many.add_texts("more");
  refused(many, "VALUE_OUT_OF_RANGE", "texts");
  auto large = of_texts();
  large.add_texts(std::string((1 << 20) + 1, 'a'));
  refused(large, "TOO_LARGE", "texts");
  auto nobody = of_texts();
  nobody.clear_model();
  refused(nobody, "MISSING_FIELD", "model");
  auto adapter = of_texts();
  adapter.set_model("ft:small-model:default:a:01jd0000000000000000000000");
  refused(adapter, "INVALID_FIELD", "model");
  auto unknown = of_texts();
  unknown.mutable_head_selection()->set_criterion(static_cast<v1::HeadSelection::Criterion>(77));
  refused(unknown, "INVALID_FIELD", "head_selection.criterion");
  auto fraction = of_texts();
  fraction.mutable_head_selection()->set_criterion(v1::HeadSelection::CRITERION_ENTROPY);
  fraction.mutable_head_selection()->set_fraction(1.5);
  refused(fraction, "VALUE_OUT_OF_RANGE", "head_selection.fraction");
  auto unused = of_texts();
  unused.mutable_head_selection()->set_criterion(v1::HeadSelection::CRITERION_ENTROPY);
  unused.mutable_head_selection()->set_tau(1);
  refused(unused, "UNUSED_FIELD", "head_selection.tau");
  auto later = of_texts();
  later.mutable_head_selection()->set_reselect_every_steps(5);
  refused(later, "UNUSED_FIELD", "head_selection.reselect_every_steps");
  auto elsewhere = of_texts();
  elsewhere.mutable_head_selection()->mutable_calibration()->set_file("file-1");
  refused(elsewhere, "UNUSED_FIELD", "head_selection.calibration.file");
  auto missing = of_texts();
  missing.clear_texts();
  missing.set_file("file-01jd0000000000000000000000");
  refused(missing, "RESOURCE_NOT_FOUND", "file");
  EXPECT_FALSE(claim().has_job());
}

}  // namespace
}  // namespace dex::server
