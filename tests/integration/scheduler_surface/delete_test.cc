// What goes with a deleted job and a deleted adapter, and what stays.
#include <fstream>
#include <future>
#include <utility>

#include "dex/v1/evaluation.grpc.pb.h"
#include "scheduler/server/leftovers.h"
#include "scheduler/server/request_key.h"
#include "tests/integration/scheduler_surface/surface_fixture.h"
#include "tests/support/eventually.h"

namespace dex::server {
namespace {

namespace fs = std::filesystem;

class DeleteTest : public SurfaceTest {
 protected:
  struct Trained {
    std::string job, adapter;
    fs::path attempt;  // its directory
  };
  // A job that has published an adapter and left more than that.
  Trained train() {
    enlist();
    const auto job = create_good();
    const auto claimed = claim().job();
    EXPECT_EQ(finish_well(claimed), "SUCCEEDED");
    Trained trained{job.id(), get(job.id()).fine_tuned_model(),
                    directory_ / "data" / claimed.attempt_dir()};
    fs::create_directories(trained.attempt / "step-10");
    std::ofstream(trained.attempt / "step-10/optimizer.safetensors") << "moments";
    std::ofstream(trained.attempt / "trainer.log") << "lines";
    fs::create_directories(folder_of(job.id()) / "attempt-1/step-5");
    return trained;
  }
  void load(const std::string& adapter) {
    v1::LoadAdapterRequest request;
    request.set_id(adapter);
    request.set_wait_seconds(0);
    EXPECT_FALSE(call(*adapters_, &AdapterStub::LoadAdapter, request).ok()) << "nobody serves it";
  }
  void unload(const std::string& adapter) {
    v1::UnloadAdapterRequest request;
    request.set_id(adapter);
    EXPECT_TRUE(call(*adapters_, &AdapterStub::UnloadAdapter, request).ok());
  }
  base::Result<v1::DeleteAdapterResponse> remove_adapter(const std::string& id,
                                                         const std::string& request_id = "",
                                                         bool* replayed = nullptr) {
    v1::DeleteAdapterRequest request;
    request.set_id(id);
    request.set_request_id(request_id);
    return call(*adapters_, &AdapterStub::DeleteAdapter, request, 20000, replayed);
  }
  void cancel(const std::string& id) {
    v1::CancelFineTuningJobRequest request;
    request.set_id(id);
    EXPECT_TRUE(call(*jobs_, &JobStub::CancelFineTuningJob, request).ok());
  }
  base::Result<v1::FineTuningJob> go_on_from(const std::string& adapter) {
    v1::CreateFineTuningJobRequest request;
    *request.mutable_spec() = spec(upload_good());
    request.mutable_spec()->set_model(adapter);
    return create(request);
  }
};

TEST_F(DeleteTest, AJobGoesAndItsAdapterStaysAndCanBeGoneOnFrom) {
  const Trained trained = train();
  const auto deleted = remove(trained.job);
  ASSERT_TRUE(deleted.ok()) << deleted.status().to_string();
  EXPECT_EQ(deleted->id(), trained.job);
  EXPECT_EQ(status_of(trained.job).reason(), "RESOURCE_NOT_FOUND");
  EXPECT_EQ(redis_.call({"EXISTS", "dex:{s0}:spec:" + trained.job, "dex:{s0}:log:" + trained.job})
                .as_int(),
            0);
  EXPECT_TRUE(status_of_adapter(trained.adapter).ok());
  EXPECT_TRUE(fs::exists(trained.attempt / "final/adapter_model.safetensors"));
  EXPECT_FALSE(fs::exists(trained.attempt / "step-10"));
  EXPECT_FALSE(fs::exists(trained.attempt / "trainer.log"));
  EXPECT_FALSE(fs::exists(folder_of(trained.job) / "attempt-1"));
  const auto next = go_on_from(trained.adapter);
  ASSERT_TRUE(next.ok()) << next.status().to_string();

  cancel(next->id());
  ASSERT_TRUE(remove_adapter(trained.adapter).ok());
  EXPECT_FALSE(fs::exists(folder_of(trained.job))) << "with the last of it the folder goes";
}

// Between the look at a failed job and its mark it has had another life, and published.
TEST_F(DeleteTest, AnAdapterThatCameSinceTheLookStays) {
  enlist();
  const auto job = create_good();
  ASSERT_EQ(finish(claim().job(), iv1::OUTCOME_FAIL_FINAL, "loss_diverged"), "FAILED");
  store::Store::Options options;
  options.redis.address = redis_.address();
  store::Store redis(std::move(options));
  store::JobRepository jobs(redis);
  store::AdapterRepository adapters(redis);
  const auto seen = jobs.get("default", job.id());
  ASSERT_TRUE(seen.ok()) << seen.status().to_string();
  ASSERT_TRUE(redrive(job.id()).ok());
  const auto again = claim().job();
  ASSERT_EQ(finish_well(again), "SUCCEEDED");
  const std::string adapter = get(job.id()).fine_tuned_model();

  const DataLayout layout(directory_ / "data");
  const auto deleted = delete_ended_job(layout, jobs, adapters, *seen, {"delete", "digest"});
  ASSERT_TRUE(deleted.ok()) << deleted.status().to_string();
  EXPECT_FALSE(*deleted);
  EXPECT_EQ(status_of(job.id()).reason(), "RESOURCE_NOT_FOUND");
  EXPECT_TRUE(status_of_adapter(adapter).ok());
  EXPECT_TRUE(
      fs::exists(directory_ / "data" / again.attempt_dir() / "final/adapter_model.safetensors"));
}

TEST_F(DeleteTest, WithItsAdapterEverythingGoes) {
  const Trained trained = train();
  ASSERT_TRUE(remove(trained.job, true).ok());
  EXPECT_EQ(status_of(trained.job).reason(), "RESOURCE_NOT_FOUND");
  EXPECT_EQ(status_of_adapter(trained.adapter).reason(), "RESOURCE_NOT_FOUND");
  EXPECT_FALSE(fs::exists(folder_of(trained.job)));
}

TEST_F(DeleteTest, ALoadedAdapterKeepsItsJobFromBeingDeletedWithIt) {
  const Trained trained = train();
  load(trained.adapter);
  const auto status = remove(trained.job, true).status();
  EXPECT_EQ(status.code(), base::Code::kFailedPrecondition);
  EXPECT_EQ(status.reason(), "ADAPTER_IN_USE");
  EXPECT_TRUE(status_of(trained.job).ok()) << "nothing was deleted";
  EXPECT_TRUE(fs::exists(trained.attempt / "trainer.log"));
  EXPECT_EQ(remove_adapter(trained.adapter).status().reason(), "ADAPTER_IN_USE");
  unload(trained.adapter);
  EXPECT_TRUE(remove(trained.job, true).ok());
  EXPECT_EQ(status_of_adapter(trained.adapter).reason(), "RESOURCE_NOT_FOUND");
}

TEST_F(DeleteTest, OnlyAnEndedJobGoes) {
  enlist();
  const auto job = create_good();
  EXPECT_EQ(remove(job.id()).status().reason(), "JOB_STATE_CONFLICT");
  const auto claimed = claim().job();
  EXPECT_EQ(remove(job.id()).status().reason(), "JOB_STATE_CONFLICT");
  EXPECT_EQ(finish(claimed, iv1::OUTCOME_FAIL_FINAL, "loss_diverged"), "FAILED");
  EXPECT_TRUE(remove(job.id(), true).ok()) << "an adapter that never was is none to be missed";
  EXPECT_EQ(redrive(job.id()).status().reason(), "RESOURCE_NOT_FOUND");
}

TEST_F(DeleteTest, ARepeatIsAReplay) {
  const Trained trained = train();
  bool replayed = true;
  ASSERT_TRUE(remove(trained.job, false, "gone", &replayed).ok());
  EXPECT_FALSE(replayed);
  const auto again = remove(trained.job, false, "gone", &replayed);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(replayed);
  EXPECT_EQ(remove(trained.job, true, "gone").status().reason(), "IDEMPOTENCY_CONFLICT");
  EXPECT_EQ(remove(trained.job).status().reason(), "RESOURCE_NOT_FOUND");

  EXPECT_EQ(remove_adapter(trained.adapter, "adapter gone").status().reason(), "INVALID_FIELD");
  ASSERT_TRUE(remove_adapter(trained.adapter, "adapter-gone", &replayed).ok());
  EXPECT_FALSE(replayed);
  ASSERT_TRUE(remove_adapter(trained.adapter, "adapter-gone", &replayed).ok());
  EXPECT_TRUE(replayed);
}

// Redis has done it, and its answer was lost: the store asks again and hears that it is done.
TEST_F(DeleteTest, AnAnswerThatWasLostLeavesNoFiles) {
  const Trained trained = train();
  v1::DeleteAdapterRequest body;
  body.set_id(trained.adapter);
  redis_.call({"HSET", "dex:{s0}:idem:default:unheard", "ids", trained.adapter, "sha",
               request_sha256(body)});
  ASSERT_TRUE(remove_adapter(trained.adapter, "unheard").ok());
  EXPECT_FALSE(fs::exists(trained.attempt / "final"));
  EXPECT_TRUE(fs::exists(trained.attempt / "trainer.log")) << "that is the job's";
}

TEST_F(DeleteTest, AnotherTenantsJobAndAdapterAreNotThere) {
  const Trained trained = train();
  redis_.call({"HSET", "dex:{s0}:job:" + trained.job, "tenant", "other"});
  redis_.call({"HSET", "dex:{s0}:adapter:" + trained.adapter, "tenant", "other"});
  EXPECT_EQ(remove(trained.job).status().reason(), "RESOURCE_NOT_FOUND");
  EXPECT_EQ(pause(trained.job).status().reason(), "RESOURCE_NOT_FOUND");
  EXPECT_EQ(resume(trained.job).status().reason(), "RESOURCE_NOT_FOUND");
  EXPECT_EQ(redrive(trained.job).status().reason(), "RESOURCE_NOT_FOUND");
  EXPECT_EQ(remove_adapter(trained.adapter).status().reason(), "RESOURCE_NOT_FOUND");
  v1::UpdateFineTuningJobRequest request;
  request.set_id(trained.job);
  request.set_priority(1);
  EXPECT_EQ(update(request).status().reason(), "RESOURCE_NOT_FOUND");
  EXPECT_TRUE(fs::exists(trained.attempt / "trainer.log"));
}

// Through all its attempts: the next one would find no adapter to begin with.
TEST_F(DeleteTest, AnAdapterStaysWhileAJobThatGoesOnFromItLives) {
  const Trained trained = train();
  const auto next = go_on_from(trained.adapter);
  ASSERT_TRUE(next.ok()) << next.status().to_string();
  const auto expect_refused = [&](const base::Status& status) {
    EXPECT_EQ(status.code(), base::Code::kFailedPrecondition);
    EXPECT_EQ(status.reason(), "ADAPTER_IN_USE");
    EXPECT_NE(status.message().find(next->id()), std::string::npos) << status.message();
  };
  expect_refused(remove_adapter(trained.adapter).status());
  const auto claimed = claim().job();
  expect_refused(remove(trained.job, true).status());
  EXPECT_EQ(finish(claimed, iv1::OUTCOME_RELEASE), "READY");
  expect_refused(remove_adapter(trained.adapter).status());
  EXPECT_TRUE(fs::exists(trained.attempt / "final/adapter_model.safetensors"));

  cancel(next->id());
  EXPECT_TRUE(remove_adapter(trained.adapter).ok());
  EXPECT_EQ(go_on_from(trained.adapter).status().reason(), "RESOURCE_NOT_FOUND");
}

TEST_F(DeleteTest, AnAdapterStaysWhileAnEvaluationThatMeasuresItLives) {
  const Trained trained = train();
  v1::UploadFileRequest::Header header;
  header.set_filename("wiki.raw");
  header.set_purpose(v1::FILE_PURPOSE_EVALS);
  const auto text = upload("some text\n", header);
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  v1::CreateEvaluationRequest request;
  request.mutable_spec()->add_subjects()->set_model("small-model");
  request.mutable_spec()->add_subjects()->set_adapter(trained.adapter);
  request.mutable_spec()->add_tasks()->mutable_perplexity()->set_file(text->id());
  const auto evaluations = v1::EvaluationService::NewStub(connected(scheduler_->grpc_address()));
  const auto made = call(*evaluations, &v1::EvaluationService::Stub::CreateEvaluation, request);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const auto status = remove_adapter(trained.adapter).status();
  EXPECT_EQ(status.reason(), "ADAPTER_IN_USE");
  EXPECT_NE(status.message().find(made->id()), std::string::npos) << status.message();
  v1::CancelEvaluationRequest enough;
  enough.set_id(made->id());
  ASSERT_TRUE(call(*evaluations, &v1::EvaluationService::Stub::CancelEvaluation, enough).ok());
  EXPECT_TRUE(remove_adapter(trained.adapter).ok());
}

TEST_F(DeleteTest, AQueuedJobWhoseAdapterWasDeletedFailsAndSaysWhy) {
  const Trained trained = train();
  const auto next = go_on_from(trained.adapter);
  ASSERT_TRUE(next.ok()) << next.status().to_string();
  // As of a job that was created before adapters were held.
  redis_.call({"DEL", "dex:{s0}:adapteruse:" + trained.adapter});
  ASSERT_TRUE(remove_adapter(trained.adapter).ok());
  EXPECT_TRUE(claim().has_none());
  const auto failed = get(next->id());
  EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(failed.error().code(), "invalid_hyperparameter");
  EXPECT_NE(failed.error().message().find(trained.adapter), std::string::npos)
      << failed.error().message();
  EXPECT_EQ(failed.attempt(), 1U) << "and no worker had to try it three times";
}

TEST_F(DeleteTest, AQueuedExportWhoseAdapterWasDeletedIsOfNothing) {
  const Trained trained = train();
  v1::ExportAdapterRequest request;
  request.set_adapter(trained.adapter);
  request.set_kind(v1::ExportAdapterRequest::KIND_FOLDED_SAFETENSORS);
  auto asked = std::async(std::launch::async, [&] {
    return call(*adapters_, &AdapterStub::ExportAdapter, request, 30'000);
  });
  ASSERT_TRUE(support::eventually([&] {
    return redis_.call({"ZCARD", "dex:{s0}:twait:default"}).as_int() == 1;
  }));
  ASSERT_TRUE(remove_adapter(trained.adapter).ok());
  EXPECT_TRUE(claim().has_none());
  const auto status = asked.get().status();
  EXPECT_EQ(status.code(), base::Code::kNotFound);
  EXPECT_EQ(status.reason(), "RESOURCE_NOT_FOUND") << status.to_string();
  EXPECT_NE(status.message().find(trained.adapter + " was deleted"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace dex::server
