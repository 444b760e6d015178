// A job that runs out of memory, from the worker's word to what its owner reads.
#include <gmock/gmock.h>

#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

constexpr int64_t kGiB = int64_t{1} << 30;

class OutOfMemoryServerTest : public SchedulerTest {
 protected:
  OutOfMemoryServerTest() { enlist(); }

  // A job with micro-batches of four sequences of 256 tokens.
  std::string create_job() {
    v1::CreateFineTuningJobRequest request;
    *request.mutable_spec() = spec(upload_good());
    auto& hyper = *request.mutable_spec()->mutable_hyperparameters();
    hyper.set_max_seq_length(256);
    hyper.set_batch_size(8);
    hyper.set_micro_batch_size(4);
    const auto job = create(request);
    EXPECT_TRUE(job.ok()) << job.status().to_string();
    return job.ok() ? job->id() : "";
  }
  static v1::OutOfMemory post_mortem(uint32_t micro_batch_size) {
    v1::OutOfMemory out;
    out.set_where(v1::OutOfMemory::WHERE_BACKWARD);
    out.set_longest_row_tokens(250);
    out.set_peak_memory_bytes(8 * kGiB);
    out.set_micro_batch_size(micro_batch_size);
    out.set_max_seq_length(256);
    out.set_step(3);
    return out;
  }
  std::string end(const iv1::ClaimedJob& job, iv1::Outcome outcome, const v1::OutOfMemory& memory,
                  const std::string& tenant = "default") {
    iv1::FinishRequest request;
    request.set_worker_id("w1");
    request.set_job_id(job.job_id());
    request.set_epoch(job.epoch());
    request.set_outcome(outcome);
    request.set_code("out_of_memory");
    request.set_message("out of memory in the backward pass");
    *request.mutable_out_of_memory() = memory;
    request.set_tenant(tenant);
    const auto reply = call(*workers_, &iv1::WorkerService::Stub::Finish, request);
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    return reply.ok() ? reply->state() : "";
  }
  std::vector<v1::FineTuningEvent> events(const std::string& id, const std::string& type) {
    v1::ListFineTuningEventsRequest request;
    request.set_id(id);
    request.set_page_size(1000);
    const auto reply = call(*jobs_, &JobStub::ListFineTuningEvents, request);
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    std::vector<v1::FineTuningEvent> found;
    if (!reply.ok()) return found;
    for (const auto& event : reply->events()) {
      if (event.type() == type) found.push_back(event);
    }
    return found;
  }
};

TEST_F(OutOfMemoryServerTest, IsTriedOnceMoreThenFailsWithItsPostMortem) {
  const std::string id = create_job();
  const auto first = claim().job();
  EXPECT_EQ(first.oom_retries(), 0U);
  EXPECT_EQ(first.tenant(), "default");
  v1::FineTuningEvent told;
  told.set_type("out_of_memory");
  told.set_level(v1::FineTuningEvent::LEVEL_WARN);
  told.set_message("out of memory; tried again with micro_batch_size 2");
  *told.mutable_out_of_memory() = post_mortem(4);
  (*told.mutable_out_of_memory()->mutable_retry_with())["hyperparameters.micro_batch_size"] = 2;
  beat(first, 1, "w1", {told});
  EXPECT_EQ(end(first, iv1::OUTCOME_OOM, post_mortem(4)), "READY");

  const auto seen = events(id, "out_of_memory");
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].out_of_memory().where(), v1::OutOfMemory::WHERE_BACKWARD);
  EXPECT_THAT(seen[0].out_of_memory().retry_with(),
              UnorderedElementsAre(Pair("hyperparameters.micro_batch_size", 2U)));
  const auto restarts = events(id, "job_restarted");
  ASSERT_EQ(restarts.size(), 1U);
  EXPECT_THAT(restarts[0].message(), HasSubstr("out of memory in the backward pass"));

  const auto second = claim().job();
  EXPECT_EQ(second.oom_retries(), 1U) << "the trainer halves its micro-batch";
  EXPECT_EQ(end(second, iv1::OUTCOME_OOM, post_mortem(2)), "FAILED");
  const auto error = get(id).error();
  EXPECT_EQ(error.code(), "out_of_memory");
  EXPECT_EQ(error.category(), "CAPACITY");
  EXPECT_TRUE(error.retryable());
  EXPECT_EQ(error.attempt(), 2U);
  ASSERT_TRUE(error.has_out_of_memory());
  EXPECT_EQ(error.out_of_memory().where(), v1::OutOfMemory::WHERE_BACKWARD);
  EXPECT_EQ(error.out_of_memory().longest_row_tokens(), 250);
  EXPECT_EQ(error.out_of_memory().peak_memory_bytes(), 8 * kGiB);
  EXPECT_EQ(error.out_of_memory().step(), 3U);
  // It ran with two sequences, and had more memory than the estimate asks for: one is next.
  EXPECT_THAT(error.out_of_memory().nearest_fit(),
              UnorderedElementsAre(Pair("hyperparameters.micro_batch_size", 1U)));
  EXPECT_THAT(error.message(), HasSubstr("by the estimate, micro_batch_size 1 would fit"));
}

TEST_F(OutOfMemoryServerTest, WithoutASmallerMicroBatchTheSequenceIsHalved) {
  const std::string id = create_job();
  EXPECT_EQ(end(claim().job(), iv1::OUTCOME_FAIL_FINAL, post_mortem(1)), "FAILED");
  const auto job = get(id);
  EXPECT_EQ(job.attempt(), 1U) << "at once";
  EXPECT_THAT(job.error().out_of_memory().nearest_fit(),
              UnorderedElementsAre(Pair("hyperparameters.max_seq_length", 128U)));
}

TEST_F(OutOfMemoryServerTest, WhereTheModelItselfDoesNotFitNothingWould) {
  const std::string id = create_job();
  auto memory = post_mortem(1);
  memory.set_peak_memory_bytes(100 << 20);  // of 540 MB that the base alone takes
  EXPECT_EQ(end(claim().job(), iv1::OUTCOME_FAIL_FINAL, memory), "FAILED");
  EXPECT_THAT(get(id).error().out_of_memory().nearest_fit(), IsEmpty());
  EXPECT_THAT(get(id).error().message(), testing::Not(HasSubstr("would fit")));
}

// What would fit is the scheduler's to say; a tenant that is not the job's opens nothing.
TEST_F(OutOfMemoryServerTest, AWorkersOwnAdviceIsNotTaken) {
  const std::string id = create_job();
  auto memory = post_mortem(1);
  for (int i = 0; i < 100; ++i) {
    (*memory.mutable_nearest_fit())["hyperparameters.lie_" + std::to_string(i)] = 7;
    (*memory.mutable_retry_with())["hyperparameters.lie_" + std::to_string(i)] = 7;
  }
  EXPECT_EQ(end(claim().job(), iv1::OUTCOME_FAIL_FINAL, memory, "somebody-else"), "FAILED");
  const auto found = get(id).error().out_of_memory();
  EXPECT_EQ(found.where(), v1::OutOfMemory::WHERE_BACKWARD);
  EXPECT_THAT(found.nearest_fit(), IsEmpty());
  EXPECT_THAT(found.retry_with(), IsEmpty());
}

}  // namespace
}  // namespace dex::server
