// An evaluation's way through the queue, with a worker that only this test plays.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>

#include <fstream>

#include "dex/v1/evaluation.grpc.pb.h"
#include "services/base/sha256.h"
#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {
namespace {

using testing::HasSubstr;
using EvaluationStub = v1::EvaluationService::Stub;

class EvaluationTest : public SchedulerTest {
 protected:
  EvaluationTest() { reconnect(); }
  void reconnect() {
    evaluations_ = v1::EvaluationService::NewStub(rpc::channel(scheduler_->grpc_address()));
  }

  v1::File upload_evals(const std::string& bytes, const std::string& name) {
    v1::UploadFileRequest::Header header;
    header.set_filename(name);
    header.set_purpose(v1::FILE_PURPOSE_EVALS);
    const auto file = upload(bytes, header);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return file.ok() ? *file : v1::File();
  }
  v1::CreateEvaluationRequest perplexity_of(const std::string& file) {
    v1::CreateEvaluationRequest request;
    request.mutable_spec()->add_subjects()->set_model("small-model");
    request.mutable_spec()->add_tasks()->mutable_perplexity()->set_file(file);
    return request;
  }
  base::Result<v1::Evaluation> create_evaluation(const v1::CreateEvaluationRequest& request,
                                                 bool* replayed = nullptr) {
    return call(*evaluations_, &EvaluationStub::CreateEvaluation, request, 20000, replayed);
  }
  v1::Evaluation created() {
    const auto made =
        create_evaluation(perplexity_of(upload_evals("some text\n", "wiki.raw").id()));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? *made : v1::Evaluation();
  }
  base::Result<v1::Evaluation> get_evaluation(const std::string& id) {
    v1::GetEvaluationRequest request;
    request.set_id(id);
    return call(*evaluations_, &EvaluationStub::GetEvaluation, request);
  }
  base::Result<v1::Evaluation> cancel_evaluation(const std::string& id) {
    v1::CancelEvaluationRequest request;
    request.set_id(id);
    return call(*evaluations_, &EvaluationStub::CancelEvaluation, request);
  }
  void refused(const v1::CreateEvaluationRequest& request, const std::string& reason,
               const std::string& field) {
    const auto status = create_evaluation(request).status();
    EXPECT_EQ(status.reason(), reason) << status.to_string();
    bool named = field.empty();
    for (const auto& violation : status.violations()) named = named || violation.field == field;
    EXPECT_TRUE(named) << field << " is not named by " << status.to_string();
  }

  // Writes what a worker publishes and reports it.
  std::string publish(const iv1::ClaimedJob& job, const std::string& worker = "w1") {
    v1::EvaluationReport report;
    auto& result = *report.add_results();
    result.set_task("perplexity");
    auto& row = *result.add_rows();
    row.set_metric("perplexity");
    row.set_value(17.5);
    row.set_low(16);
    row.set_high(19);
    std::string results;
    EXPECT_TRUE(google::protobuf::util::MessageToJsonString(report, &results).ok());
    results.insert(results.rfind('}'), R"(, "ofANewerWorker": {"a": [1]})");  // is passed over
    const std::string markdown = "## perplexity\n";
    const auto folder = directory_ / "data" / job.attempt_dir() / "final";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "results.json") << results;
    std::ofstream(folder / "report.md") << markdown;
    const std::string manifest = R"({"results.json": ")" + base::sha256_hex(results) +
                                 R"(", "report.md": ")" + base::sha256_hex(markdown) + "\"}";
    std::ofstream(folder / "checksums.json") << manifest;
    iv1::FinishRequest request;
    request.set_worker_id(worker);
    request.set_job_id(job.job_id());
    request.set_epoch(job.epoch());
    request.set_outcome(iv1::OUTCOME_SUCCESS);
    request.mutable_result()->set_uri(job.attempt_dir() + "/final");
    request.mutable_result()->set_manifest_sha256(base::sha256_hex(manifest));
    const auto reply = call(*workers_, &iv1::WorkerService::Stub::Finish, request);
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    return reply.ok() ? reply->state() : "";
  }

  std::unique_ptr<EvaluationStub> evaluations_;
};

TEST_F(EvaluationTest, IsOnlyGivenToAWorkerThatHasItsModel) {
  enlist("w1", {"other-model"});
  enlist("w2", {"small-model"});
  const auto made = created();
  EXPECT_FALSE(claim("w1").has_job());
  EXPECT_EQ(claim("w2").job().job_id(), made.id());
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
  lease_ms_ = 2000;
  restart();
  reconnect();
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

  const auto second = claim("w2", 20000);  // waits for the lease to run out
  ASSERT_TRUE(second.has_job());
  EXPECT_EQ(second.job().job_id(), made.id());
  EXPECT_EQ(second.job().attempt(), 2U);
  EXPECT_EQ(second.job().checkpoint().uri(), first.attempt_dir() + "/step-1");
  EXPECT_EQ(publish(first, "w1"), "LOST");
  EXPECT_EQ(publish(second.job(), "w2"), "SUCCEEDED");
  EXPECT_EQ(get_evaluation(made.id())->attempt(), 2U);
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

TEST_F(EvaluationTest, AnAdapterThatIsAWholeModelIsRefused) {
  const std::string whole = train_adapter("MODEL");
  auto request = perplexity_of(upload_evals("some text\n", "a.raw").id());
  request.mutable_spec()->add_subjects()->set_adapter(whole);
  refused(request, "NOT_SUPPORTED", "");
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
