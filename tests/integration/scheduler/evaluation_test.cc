// An evaluation's way through the queue, with a worker that only this test plays.
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <string>

#include "tests/integration/scheduler/evaluation_fixture.h"

namespace dex::server {
namespace {

using testing::HasSubstr;

TEST_F(EvaluationTest, IsOnlyGivenToAWorkerThatHasItsModel) {
  enlist("w1", {"other-model"});
  enlist("w2", {"small-model"});
  const auto made = created();
  EXPECT_FALSE(claim("w1").has_job());
  EXPECT_EQ(claim("w2").job().job_id(), made.id());
}

// An agent of before reads the text from a file that there is none of, and would fail it.
TEST_F(EvaluationTest, NeedlesWithoutAFileWaitForAWorkerThatHasTheText) {
  v1::CreateEvaluationRequest request;
  request.mutable_spec()->add_subjects()->set_model("small-model");
  request.mutable_spec()->add_tasks()->mutable_multi_needle();
  const auto made = create_evaluation(request);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  enlist("w1", {"small-model"});
  EXPECT_FALSE(claim("w1").has_job());
  EXPECT_EQ(get_evaluation(made->id())->waiting_reason(), v1::WAITING_REASON_MODEL);
  iv1::RegisterRequest newer;
  newer.set_worker_id("w2");
  newer.add_pools("cpu");
  newer.set_slots(1);
  newer.add_models("small-model");
  newer.add_features("shipped_text");
  newer.add_features("of_a_later_version");
  ASSERT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Register, newer).ok());
  EXPECT_EQ(claim("w2").job().job_id(), made->id());
  newer.add_features("no feature");
  EXPECT_EQ(call(*workers_, &iv1::WorkerService::Stub::Register, newer).status().reason(),
            "INVALID_FIELD");
}

TEST_F(EvaluationTest, CreateClaimBeatFinishGet) {
  const std::string adapter = train_adapter();
  const auto file = upload_evals("some text\n", "wiki.raw");
  EXPECT_EQ(file.purpose(), v1::FILE_PURPOSE_EVALS);
  auto request = perplexity_of(file.id());
  request.mutable_spec()->add_subjects()->set_adapter(adapter);
  const auto made = create_evaluation(request);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_TRUE(made->id().starts_with("eval-")) << made->id();
  EXPECT_EQ(made->state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(made->spec().subjects(1).model(), "small-model") << "known from the adapter";
  EXPECT_EQ(made->spec().subjects(1).label(), "adapter");
  EXPECT_EQ(made->progress().total_steps(), 1U);

  const auto job = claim().job();
  EXPECT_EQ(job.job_id(), made->id());
  EXPECT_EQ(job.kind(), "evaluation");
  EXPECT_FALSE(job.has_spec());
  EXPECT_EQ(job.evaluation().SerializeAsString(), made->spec().SerializeAsString());
  ASSERT_EQ(job.evaluation_files_size(), 1);
  EXPECT_EQ(job.evaluation_files(0).filename(), "wiki.raw");
  EXPECT_TRUE(std::filesystem::exists(directory_ / "data" / job.evaluation_files(0).path()));
  ASSERT_EQ(job.evaluated_adapters_size(), 1);
  EXPECT_EQ(job.evaluated_adapters(0).id(), adapter);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "data" / job.evaluated_adapters(0).path()));
  EXPECT_EQ(job.attempt_dir(),
            "jobs/default/" + made->id() + "/attempt-" + std::to_string(job.epoch()));

  v1::FineTuningEvent done;
  done.set_type("job_evaluation");
  done.mutable_job_evaluation()->set_task("perplexity");
  EXPECT_EQ(beat(job, 1, "w1", {done}).attempts(0).verdict(), iv1::AttemptVerdict::VERDICT_OK);
  EXPECT_EQ(get_evaluation(made->id())->state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(publish(job), "SUCCEEDED");

  const auto ended = get_evaluation(made->id());
  ASSERT_TRUE(ended.ok()) << ended.status().to_string();
  EXPECT_EQ(ended->state(), v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(ended->results_size(), 1);
  EXPECT_EQ(ended->results(0).rows(0).value(), 17.5);
  EXPECT_EQ(ended->report_markdown(), "## perplexity\n");

  grpc::ClientContext context;
  rpc::set_timeout(context, std::chrono::seconds(20));
  v1::WatchEvaluationRequest watch;
  watch.set_id(made->id());
  const auto reader = evaluations_->WatchEvaluation(&context, watch);
  std::vector<std::string> types;
  v1::JobState last = v1::JOB_STATE_UNSPECIFIED;
  for (v1::WatchEvaluationResponse message; reader->Read(&message);) {
    if (message.has_event()) types.push_back(message.event().type());
    if (message.has_snapshot()) last = message.snapshot().state();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_THAT(types,
              testing::ElementsAre("job_queued", "job_start", "job_evaluation", "job_complete"));
  EXPECT_EQ(last, v1::JOB_STATE_SUCCEEDED);
  const std::string metrics = http("/metrics");
  EXPECT_THAT(metrics,
              HasSubstr(R"(dex_job_submits_total{kind="evaluation",outcome="created"} 1)"));
  EXPECT_THAT(metrics, HasSubstr(R"(kind="evaluation",outcome="succeeded")"));
}

TEST_F(EvaluationTest, PicturesComeWhenTheyAreAskedForAndFit) {
  enlist();
  const std::string large(2 << 20, 'x');
  const std::map<std::string, std::string> pictures = {{"heads-1-base.svg", "<svg>base</svg>"},
                                                       {"heads-2-base.svg", large},
                                                       {"heads-3-base.svg", large},
                                                       {"heads-4-base.svg", "<svg>last</svg>"}};
  const auto made = created();
  const auto job = claim().job();
  ASSERT_EQ(publish(job, "w1", pictures), "SUCCEEDED");
  EXPECT_EQ(get_evaluation(made.id())->pictures_size(), 0);
  const auto found = get_evaluation(made.id(), true);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  ASSERT_EQ(found->pictures_size(), 3);
  EXPECT_EQ(found->pictures(0).name(), "heads-1-base.svg");
  EXPECT_EQ(found->pictures(0).svg(), "<svg>base</svg>");
  EXPECT_EQ(found->pictures(1).svg(), large);
  EXPECT_EQ(found->pictures(2).name(), "heads-4-base.svg");
  EXPECT_THAT(found->pictures_left_out(), testing::ElementsAre("heads-3-base.svg"));
  EXPECT_LT(found->ByteSizeLong(), size_t{4} << 20) << "gRPC's limit of a message";
  const auto list =
      call(*evaluations_, &EvaluationStub::ListEvaluations, v1::ListEvaluationsRequest{});
  EXPECT_EQ(list->evaluations(0).pictures_size(), 0);
  std::ofstream(directory_ / "data" / job.attempt_dir() / "final/heads-1-base.svg") << "<svg/>";
  EXPECT_EQ(get_evaluation(made.id(), true).status().reason(), "ARTIFACT_CORRUPT");
  EXPECT_TRUE(get_evaluation(made.id()).ok());
}

TEST_F(EvaluationTest, JobsAndEvaluationsKeepApart) {
  const auto job = create_good();
  const auto evaluation = created();
  const auto jobs = call(*jobs_, &JobStub::ListFineTuningJobs, v1::ListFineTuningJobsRequest{});
  ASSERT_EQ(jobs->jobs_size(), 1);
  EXPECT_EQ(jobs->jobs(0).id(), job.id());
  const auto list =
      call(*evaluations_, &EvaluationStub::ListEvaluations, v1::ListEvaluationsRequest{});
  ASSERT_EQ(list->evaluations_size(), 1);
  EXPECT_EQ(list->evaluations(0).id(), evaluation.id());
  v1::GetFineTuningJobRequest get;
  get.set_id(evaluation.id());
  EXPECT_EQ(call(*jobs_, &JobStub::GetFineTuningJob, get).status().reason(), "RESOURCE_NOT_FOUND");
  EXPECT_EQ(get_evaluation(job.id()).status().reason(), "RESOURCE_NOT_FOUND");
  EXPECT_EQ(cancel_evaluation(job.id()).status().reason(), "RESOURCE_NOT_FOUND");
  v1::ListEvaluationsRequest filtered;
  filtered.mutable_filter()->add_states(v1::JOB_STATE_FAILED);
  EXPECT_EQ(call(*evaluations_, &EvaluationStub::ListEvaluations, filtered)->evaluations_size(), 0);
}

TEST_F(EvaluationTest, SameRequestIdGivesTheSameEvaluation) {
  auto request = perplexity_of(upload_evals("some text\n", "a.raw").id());
  request.set_request_id("once");
  bool replayed = true;
  const auto first = create_evaluation(request, &replayed);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_FALSE(replayed);
  EXPECT_EQ(create_evaluation(request, &replayed)->id(), first->id());
  EXPECT_TRUE(replayed);
  request.mutable_spec()->set_seed(3);
  EXPECT_EQ(create_evaluation(request).status().reason(), "IDEMPOTENCY_CONFLICT");
  request.set_request_id("");
  request.set_validate_only(true);
  EXPECT_EQ(create_evaluation(request)->id(), "");
}

TEST_F(EvaluationTest, ALostWorkersEvaluationGoesOnBehindItsLastStep) {
  enlist("w1");
  enlist("w2");
  const auto made = created();
  const auto first = claim("w1").job();
  iv1::HeartbeatRequest offer;
  offer.set_worker_id("w1");
  auto& attempt = *offer.add_attempts();
  attempt.set_job_id(first.job_id());
  attempt.set_epoch(first.epoch());
  attempt.set_beat_seq(1);
  attempt.mutable_checkpoint()->set_uri(first.attempt_dir() + "/step-1");
  attempt.mutable_checkpoint()->set_manifest_sha256("feed");
  attempt.mutable_checkpoint()->set_step(1);
  ASSERT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Heartbeat, offer).ok());

  let_lease_run_out(first.job_id());
  const auto second = claim("w2", 20000);  // waits for the sweep
  ASSERT_TRUE(second.has_job());
  EXPECT_EQ(second.job().job_id(), made.id());
  EXPECT_EQ(second.job().attempt(), 2U);
  EXPECT_EQ(second.job().checkpoint().uri(), first.attempt_dir() + "/step-1");
  EXPECT_EQ(publish(first, "w1"), "LOST");
  EXPECT_EQ(publish(second.job(), "w2"), "SUCCEEDED");
  EXPECT_EQ(get_evaluation(made.id())->attempt(), 2U);
}

// A fine-tuning job whose gates ask for a task: its file is checked, travels, and is in use.
TEST_F(EvaluationTest, TheFilesOfAJobsGatesTravelWithIt) {
  enlist();
  const auto file = upload_evals("some text\n", "wiki.raw");
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  const auto add_gate = [&](const std::string& id, const std::string& metric) {
    auto& gate = *request.mutable_spec()->add_gates();
    gate.set_metric(metric);
    gate.set_op(v1::Gate::OP_LE);
    gate.set_threshold(0);
    gate.mutable_evaluation()->mutable_perplexity()->set_file(id);
  };
  add_gate(file.id(), "loss");
  add_gate(file.id(), "perplexity");
  const auto made = create(request);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const auto& gate = made->effective_config().spec().gates(0);
  EXPECT_EQ(gate.name(), "perplexity.loss");
  EXPECT_EQ(gate.evaluation().perplexity().format(), v1::TEXT_FORMAT_RAW) << "by its file's name";
  const auto job = claim().job();
  EXPECT_EQ(job.job_id(), made->id());
  ASSERT_EQ(job.evaluation_files_size(), 1);
  EXPECT_EQ(job.evaluation_files(0).file(), file.id());
  EXPECT_EQ(job.evaluation_files(0).filename(), "wiki.raw");
  EXPECT_TRUE(std::filesystem::exists(directory_ / "data" / job.evaluation_files(0).path()));
  v1::DeleteFileRequest gone;
  gone.set_id(file.id());
  EXPECT_EQ(call(*files_, &FileStub::DeleteFile, gone).status().reason(), "FILE_IN_USE");

  add_gate("file-00000000000000000000000000", "loss");
  const auto missing = create(request).status();
  EXPECT_EQ(missing.code(), base::Code::kNotFound) << missing.to_string();
  ASSERT_EQ(missing.violations().size(), 1u);
  EXPECT_EQ(missing.violations()[0].field, "gates[2].evaluation.perplexity.file");
}

TEST_F(EvaluationTest, WhatItPublishedCanBeDownloadedAndNothingElse) {
  enlist();
  const auto made = created();
  grpc::Status status;
  EXPECT_EQ(download(made.id(), &status), "");
  EXPECT_EQ(rpc::from_grpc(status).reason(), "JOB_STATE_CONFLICT");
  const auto job = claim().job();
  EXPECT_EQ(publish(job), "SUCCEEDED");
  const std::string tar = download(made.id(), &status);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(tar.starts_with("checksums.json"));
  EXPECT_THAT(tar, HasSubstr("## perplexity\n"));
  EXPECT_EQ(tar.size() % 512, 0U);
  std::ofstream(directory_ / "data" / job.attempt_dir() / "final/report.md") << "## perplexed\n";
  download(made.id(), &status);
  EXPECT_EQ(rpc::from_grpc(status).reason(), "ARTIFACT_CORRUPT");
  EXPECT_THAT(status.error_message(), HasSubstr("The evaluation's file report.md"));
}

TEST_F(EvaluationTest, CancelEndsAWaitingOneAtOnceAndOrdersARunningOne) {
  enlist();
  EXPECT_EQ(cancel_evaluation(created().id())->state(), v1::JOB_STATE_CANCELLED);
  const auto running = created();
  const auto job = claim().job();
  EXPECT_EQ(cancel_evaluation(running.id())->state(), v1::JOB_STATE_CANCELLING);
  EXPECT_EQ(beat(job, 1).attempts(0).verdict(), iv1::AttemptVerdict::VERDICT_CANCEL);
  EXPECT_EQ(finish(job, iv1::OUTCOME_CANCELLED), "CANCELLED");
  EXPECT_EQ(get_evaluation(running.id())->state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(cancel_evaluation(running.id()).ok()) << "may be repeated";
}

TEST_F(EvaluationTest, AFileThatItsTaskCannotReadIsTheUsersFault) {
  enlist();
  const auto made = created();
  EXPECT_EQ(finish(claim().job(), iv1::OUTCOME_FAIL_FINAL, "invalid_evaluation_file"), "FAILED");
  const auto failed = get_evaluation(made.id());
  EXPECT_EQ(failed->error().category(), "USER");
  EXPECT_FALSE(failed->error().retryable());
}

TEST_F(EvaluationTest, BadRequestsNameTheirFields) {
  const std::string file = upload_evals("some text\n", "a.raw").id();
  v1::CreateEvaluationRequest none;
  none.mutable_spec();
  refused(none, "MISSING_FIELD", "spec.subjects");
  auto bad = perplexity_of(file);
  bad.mutable_spec()->mutable_tasks(0)->mutable_perplexity()->set_stride(0);
  refused(bad, "VALUE_OUT_OF_RANGE", "tasks[0].perplexity.stride");
  bad = perplexity_of(file);
  bad.mutable_spec()->mutable_subjects(0)->set_model("gpt-17");
  refused(bad, "MODEL_NOT_FOUND", "subjects[0].model");
  bad = perplexity_of(file);
  bad.mutable_spec()->add_subjects()->set_model("another");
  refused(bad, "INVALID_FIELD", "subjects[1].model");
  bad = perplexity_of(file);
  bad.mutable_spec()->add_subjects()->set_adapter("ft:small-model:default::none");
  refused(bad, "RESOURCE_NOT_FOUND", "subjects[1].adapter");
  refused(perplexity_of("file-" + std::string(26, '0')), "RESOURCE_NOT_FOUND",
          "tasks[0].perplexity.file");
  const auto broken = upload_evals("bad \xFF bytes, quite a few\n", "b.raw");
  EXPECT_EQ(broken.state(), v1::FILE_STATE_INVALID);
  EXPECT_EQ(broken.findings(0).line(), 1);
  refused(perplexity_of(broken.id()), "FILE_INVALID", "tasks[0].perplexity.file");
  EXPECT_EQ(call(*evaluations_, &EvaluationStub::ListEvaluations, v1::ListEvaluationsRequest{})
                ->evaluations_size(),
            0);
}

// full, full+dex, diff: weights of its own beside the base's.
TEST_F(EvaluationTest, AWholeModelIsMeasuredBesideItsBase) {
  const std::string whole = train_adapter("MODEL", "paper", "dex");
  const std::string file = upload_evals("some text\n", "a.raw").id();
  auto request = perplexity_of(file);
  auto& subject = *request.mutable_spec()->add_subjects();
  subject.set_adapter(whole);
  subject.set_dex_lambda_scale(0.5);
  refused(request, "UNUSED_FIELD", "subjects[1].dex_lambda_scale");
  subject.clear_dex_lambda_scale();
  request.mutable_spec()->add_tasks()->mutable_head_analysis()->set_file(file);
  const auto made = create_evaluation(request);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const auto claimed = claim();
  ASSERT_TRUE(claimed.has_job());
  ASSERT_EQ(claimed.job().evaluated_adapters_size(), 1);
  EXPECT_EQ(claimed.job().evaluated_adapters(0).id(), whole);
  EXPECT_FALSE(claimed.job().evaluated_adapters(0).content_sha256().empty());
  EXPECT_EQ(publish(claimed.job()), "SUCCEEDED");

  subject.set_adapter(train_adapter("MODEL", "none", "diff"));
  refused(request, "CONFLICTING_FIELDS", "tasks[1].head_analysis");
  request.mutable_spec()->mutable_tasks()->RemoveLast();
  EXPECT_TRUE(create_evaluation(request).ok());
}

TEST_F(EvaluationTest, AScaleOfLambdaReachesTheWorkerAndNeedsABranch) {
  auto request = perplexity_of(upload_evals("some text\n", "a.raw").id());
  auto& subject = *request.mutable_spec()->add_subjects();
  subject.set_adapter(train_adapter("LIGHT", "none"));
  subject.set_dex_lambda_scale(0.5);
  refused(request, "UNUSED_FIELD", "subjects[1].dex_lambda_scale");
  subject.set_adapter(train_adapter("LIGHT", "paper"));
  const auto made = create_evaluation(request);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->spec().subjects(1).label(), "adapter-lambda-0.5");
  EXPECT_EQ(claim().job().evaluation().subjects(1).dex_lambda_scale(), 0.5);
}

TEST_F(EvaluationTest, TrainingTakesNoFileOfEvaluations) {
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_evals("{\"text\": \"a\"}\n", "a.jsonl").id());
  const auto status = create(request).status();
  EXPECT_EQ(status.reason(), "FILE_INVALID");
  EXPECT_THAT(status.message(), HasSubstr("FILE_PURPOSE_FINE_TUNE"));
  EXPECT_TRUE(create_evaluation(perplexity_of(upload_good())).ok())
      << "the other way round is fine";
}

TEST_F(EvaluationTest, ResultsThatChangedOnTheDiskAreNotShown) {
  enlist();
  const auto made = created();
  const auto job = claim().job();
  ASSERT_EQ(publish(job), "SUCCEEDED");
  std::ofstream(directory_ / "data" / job.attempt_dir() / "final/results.json") << "{}";
  EXPECT_EQ(get_evaluation(made.id()).status().reason(), "ARTIFACT_CORRUPT");
}

}  // namespace
}  // namespace dex::server
