// EstimateFineTuningJob with METHOD_PROBE, from request to estimate, with a worker that only this
// test plays.
#include <gmock/gmock.h>

#include <future>

#include "tests/integration/scheduler/scheduler_fixture.h"
#include "tests/support/eventually.h"

namespace dex::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;
using Estimated = base::Result<v1::Estimate>;

class MemoryProbeServerTest : public SchedulerTest {
 protected:
  MemoryProbeServerTest() { enlist(); }

  v1::EstimateFineTuningJobRequest estimate_request(v1::Estimate::Method mode) {
    v1::EstimateFineTuningJobRequest request;
    *request.mutable_spec() = spec(upload_good());
    auto& hyper = *request.mutable_spec()->mutable_hyperparameters();
    hyper.set_max_seq_length(256);
    hyper.set_batch_size(8);
    hyper.set_micro_batch_size(4);
    request.mutable_spec()->set_seed(7);
    request.set_mode(mode);
    return request;
  }
  // Each call waits for its worker, so it has a thread.
  std::future<Estimated> ask(const v1::EstimateFineTuningJobRequest& request,
                             int64_t timeout_ms = 30'000) {
    return std::async(std::launch::async, [this, request, timeout_ms] {
      return call(*jobs_, &JobStub::EstimateFineTuningJob, request, timeout_ms);
    });
  }
  std::string publish(const iv1::ClaimedJob& job, const v1::MemoryProbe& probe) {
    iv1::AttemptResult result;
    *result.mutable_memory_probe() = probe;
    return publish_files(job, "w1", {{"probe.json", "{}"}}, std::move(result));
  }
  static v1::MemoryProbe measured() {
    v1::MemoryProbe probe;
    probe.set_peak_memory_bytes(1'234'567'890);
    probe.set_step_tokens(2'000);
    probe.set_step_seconds(4);
    probe.set_micro_batch_size(4);
    probe.set_max_seq_length(256);
    probe.set_longest_row_tokens(250);
    probe.set_total_steps(33);
    return probe;
  }
  // What the client hears of a worker that ends with `code`.
  base::Status end(const std::string& code) {
    auto reply = ask(estimate_request(v1::Estimate::METHOD_PROBE));
    finish(claimed(), iv1::OUTCOME_FAIL_FINAL, code);
    return reply.get().status();
  }
};

TEST_F(MemoryProbeServerTest, ByFormulaNobodyIsAsked) {
  const auto found = call(*jobs_, &JobStub::EstimateFineTuningJob,
                          estimate_request(v1::Estimate::METHOD_UNSPECIFIED));
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->method(), v1::Estimate::METHOD_FORMULA);
  EXPECT_FALSE(found->has_probe());
  EXPECT_FALSE(claim().has_job());
  const auto unknown = call(*jobs_, &JobStub::EstimateFineTuningJob,
                            estimate_request(static_cast<v1::Estimate::Method>(77)));
  EXPECT_EQ(unknown.status().reason(), "INVALID_FIELD") << unknown.status().to_string();
}

TEST_F(MemoryProbeServerTest, AWorkerDoesOneUpdateAndTheEstimateIsWhatItMeasured) {
  auto asked = estimate_request(v1::Estimate::METHOD_PROBE);
  asked.mutable_spec()->set_auto_start(false);
  v1::CreateFineTuningJobRequest whole;
  *whole.mutable_spec() = asked.spec();
  whole.set_validate_only(true);
  const auto resolved = create(whole);
  ASSERT_TRUE(resolved.ok()) << resolved.status().to_string();

  auto reply = ask(asked);
  const auto job = claimed();
  EXPECT_EQ(job.kind(), "probe");
  EXPECT_TRUE(job.job_id().starts_with("probe-")) << job.job_id();
  EXPECT_EQ(job.adapter_id(), "") << "it publishes no adapter";
  EXPECT_FALSE(job.hold()) << "whoever asked waits for the answer";
  EXPECT_EQ(job.oom_retries(), 0U);
  EXPECT_EQ(job.spec().SerializeAsString(), resolved->effective_config().spec().SerializeAsString())
      << "what the job would run with";
  EXPECT_EQ(publish(job, measured()), "SUCCEEDED");

  const Estimated found = reply.get();
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->method(), v1::Estimate::METHOD_PROBE);
  EXPECT_TRUE(found->fits());
  EXPECT_EQ(found->peak_host_memory_bytes(), 1'234'567'890);
  EXPECT_EQ(found->probe().step_seconds(), 4);
  EXPECT_EQ(found->total_steps(), 33);
  // 500 tokens a second, and evaluations beside.
  EXPECT_GT(found->expected_duration_seconds(), static_cast<double>(found->train_tokens()) / 500);
  EXPECT_TRUE(found->has_effective_config());

  const auto jobs = call(*jobs_, &JobStub::ListFineTuningJobs, v1::ListFineTuningJobsRequest{});
  EXPECT_EQ(jobs->jobs_size(), 0) << "a probe is no job to see";
  EXPECT_THAT(http("/metrics"), HasSubstr(R"(kind="probe",outcome="succeeded")"));
}

TEST_F(MemoryProbeServerTest, OutOfMemoryIsAnAnswerWithTheNearestSettingThatFits) {
  auto reply = ask(estimate_request(v1::Estimate::METHOD_PROBE));
  const auto job = claimed();
  iv1::FinishRequest finish;
  finish.set_worker_id("w1");
  finish.set_job_id(job.job_id());
  finish.set_epoch(job.epoch());
  finish.set_outcome(iv1::OUTCOME_FAIL_FINAL);
  finish.set_code("out_of_memory");
  finish.set_message("out of memory in the forward pass");
  finish.set_tenant("default");
  auto& memory = *finish.mutable_out_of_memory();
  memory.set_where(v1::OutOfMemory::WHERE_FORWARD);
  memory.set_micro_batch_size(4);
  memory.set_max_seq_length(256);
  memory.set_peak_memory_bytes(int64_t{8} << 30);
  ASSERT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Finish, finish).ok());

  const Estimated found = reply.get();
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->method(), v1::Estimate::METHOD_PROBE);
  EXPECT_FALSE(found->fits());
  EXPECT_FALSE(found->allowed_to_proceed());
  EXPECT_FALSE(found->has_probe());
  EXPECT_THAT(found->nearest_fit(),
              UnorderedElementsAre(Pair("hyperparameters.micro_batch_size", 2U)));
  ASSERT_EQ(found->blockers_size(), 1);
  EXPECT_THAT(found->blockers(0), HasSubstr("out of memory in the forward pass"));
  EXPECT_GE(found->peak_host_memory_bytes(), int64_t{8} << 30);
}

TEST_F(MemoryProbeServerTest, WhatCannotFitByFormulaIsNotTried) {
  iv1::RegisterRequest small;
  small.set_worker_id("w1");
  small.add_pools("cpu");
  small.set_slots(1);
  small.add_devices()->set_memory_bytes(1 << 20);
  ASSERT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Register, small).ok());
  const auto found =
      call(*jobs_, &JobStub::EstimateFineTuningJob, estimate_request(v1::Estimate::METHOD_PROBE));
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->method(), v1::Estimate::METHOD_FORMULA);
  EXPECT_FALSE(found->fits());
  EXPECT_THAT(found->nearest_fit(), IsEmpty());
  EXPECT_FALSE(claim().has_job());
}

TEST_F(MemoryProbeServerTest, OtherFailuresAreErrors) {
  EXPECT_EQ(end("invalid_training_file").reason(), "FILE_INVALID");
  const auto field = end("invalid_hyperparameter");
  EXPECT_EQ(field.reason(), "INVALID_FIELD");
  EXPECT_EQ(field.violations().at(0).field, "learning_rate");
  EXPECT_EQ(end("internal").code(), base::Code::kInternal);
}

// What the kernel ends for want of memory looks like any crash; no second machine is risked.
TEST_F(MemoryProbeServerTest, ACrashIsNotTriedAgain) {
  auto reply = ask(estimate_request(v1::Estimate::METHOD_PROBE));
  EXPECT_EQ(finish(claimed(), iv1::OUTCOME_CRASH, "internal"), "FAILED");
  EXPECT_EQ(reply.get().status().code(), base::Code::kInternal);
}

TEST_F(MemoryProbeServerTest, RefusesWhatCreateWouldRefuse) {
  auto none = estimate_request(v1::Estimate::METHOD_PROBE);
  none.mutable_spec()->clear_training_file();
  EXPECT_EQ(call(*jobs_, &JobStub::EstimateFineTuningJob, none).status().reason(), "MISSING_FIELD");
  auto model = estimate_request(v1::Estimate::METHOD_PROBE);
  model.mutable_spec()->set_model("unknown");
  EXPECT_EQ(call(*jobs_, &JobStub::EstimateFineTuningJob, model).status().reason(),
            "MODEL_NOT_FOUND");
  EXPECT_FALSE(claim().has_job());
}

TEST_F(MemoryProbeServerTest, AClientThatGoesAwayTakesItsProbeAlong) {
  auto waiting = ask(estimate_request(v1::Estimate::METHOD_PROBE), 1'500);
  EXPECT_EQ(waiting.get().status().code(), base::Code::kDeadlineExceeded);
  EXPECT_TRUE(support::eventually([&] {
    return http("/metrics").find(R"(kind="probe",outcome="cancelled")") != std::string::npos;
  }));
  EXPECT_FALSE(claim().has_job());
  // One that runs is ordered to stop.
  auto running = ask(estimate_request(v1::Estimate::METHOD_PROBE), 3'000);
  const auto job = claimed();
  EXPECT_EQ(running.get().status().code(), base::Code::kDeadlineExceeded);
  EXPECT_TRUE(is_told_to_stop(job));
}

}  // namespace
}  // namespace dex::server
