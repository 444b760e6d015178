// jobs.md §6: each class of failure has its own counter and limit, and none eats another's budget.
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "tests/integration/scheduler/scheduler_fixture.h"
#include "tests/support/eventually.h"

namespace dex::server {
namespace {

using testing::HasSubstr;
using Budget = std::map<std::string, int>;  // counter → what is used of it

struct FailureClass {
  const char* name;
  iv1::Outcome outcome;
  const char* code;     // as the worker says it
  const char* counter;  // nullptr: none, it is final
  int attempts;         // until the job does not go on
  v1::JobState end;
  const char* end_code;  // nullptr: no error
};

class FailureClassTest : public SchedulerTest {
 protected:
  FailureClassTest() { enlist(); }

  Budget used(const std::string& id) {
    const auto job = redis_.call({"HGETALL", "dex:{s0}:job:" + id}).fields();
    Budget budget;
    for (const char* counter : {"failures", "crashes", "ooms", "fulls", "preempts"})
      budget[counter] = std::stoi(job.at(counter));
    return budget;
  }
  static Budget only(const char* counter, int count) {
    Budget budget = {{"failures", 0}, {"crashes", 0}, {"ooms", 0}, {"fulls", 0}, {"preempts", 0}};
    if (counter != nullptr) budget[counter] = count;
    return budget;
  }
  // The next attempt, whatever back-off there is before it.
  iv1::ClaimedJob next_attempt() {
    iv1::ClaimResponse answer;
    EXPECT_TRUE(support::eventually([&] {
      answer = claim("w1", 1'000);
      return answer.has_job();
    }));
    return answer.job();
  }
};

class EachClassTest : public FailureClassTest, public testing::WithParamInterface<FailureClass> {};

TEST_P(EachClassTest, CountsForItselfUpToItsLimit) {
  const FailureClass& row = GetParam();
  const std::string id = create_good().id();
  for (int attempt = 1; attempt <= row.attempts; ++attempt) {
    EXPECT_NE(get(id).state(), row.end) << attempt;
    const auto job = next_attempt();
    ASSERT_EQ(job.job_id(), id);
    EXPECT_EQ(job.attempt(), static_cast<uint32_t>(attempt));
    finish(job, row.outcome, row.code);
    ASSERT_EQ(used(id), only(row.counter, attempt));
  }
  const auto job = get(id);
  EXPECT_EQ(v1::JobState_Name(job.state()), v1::JobState_Name(row.end));
  if (row.end_code != nullptr) {
    EXPECT_EQ(job.error().code(), row.end_code);
    EXPECT_EQ(job.error().attempt(), static_cast<uint32_t>(row.attempts));
  }
  EXPECT_THAT(http("/metrics"), HasSubstr("dex_job_attempts_total{"));
}

constexpr auto kFailed = v1::JOB_STATE_FAILED;

INSTANTIATE_TEST_SUITE_P(
    Table, EachClassTest,
    testing::Values(
        FailureClass{"retryable", iv1::OUTCOME_FAIL_RETRY, "internal", "failures", 3, kFailed,
                     "internal"},
        FailureClass{"stalled", iv1::OUTCOME_FAIL_RETRY, "stalled", "failures", 3, kFailed,
                     "stalled"},
        FailureClass{"out_of_memory", iv1::OUTCOME_OOM, "out_of_memory", "ooms", 2, kFailed,
                     "out_of_memory"},
        FailureClass{"crash", iv1::OUTCOME_CRASH, "internal", "crashes", 3, kFailed, "poison_job"},
        FailureClass{"disk_full", iv1::OUTCOME_DISK_FULL, "disk_full", "fulls", 4,
                     v1::JOB_STATE_PAUSED, nullptr},
        FailureClass{"release", iv1::OUTCOME_RELEASE, "", "preempts", 101, kFailed, "internal"},
        FailureClass{"bad_config", iv1::OUTCOME_FAIL_FINAL, "invalid_hyperparameter", nullptr, 1,
                     kFailed, "invalid_hyperparameter"},
        FailureClass{"bad_data", iv1::OUTCOME_FAIL_FINAL, "invalid_training_file", nullptr, 1,
                     kFailed, "invalid_training_file"},
        FailureClass{"non_finite", iv1::OUTCOME_FAIL_FINAL, "non_finite_loss", nullptr, 1, kFailed,
                     "non_finite_loss"},
        FailureClass{"diverged", iv1::OUTCOME_FAIL_FINAL, "loss_diverged", nullptr, 1, kFailed,
                     "loss_diverged"},
        FailureClass{"guard", iv1::OUTCOME_FAIL_FINAL, "base_guard_tripped", nullptr, 1, kFailed,
                     "base_guard_tripped"},
        FailureClass{"gate", iv1::OUTCOME_FAIL_FINAL, "gate_failed", nullptr, 1, kFailed,
                     "gate_failed"},
        FailureClass{"quota", iv1::OUTCOME_FAIL_FINAL, "quota_exceeded", nullptr, 1, kFailed,
                     "quota_exceeded"},
        // A micro-batch of one can't be halved.
        FailureClass{"out_of_memory_at_once", iv1::OUTCOME_FAIL_FINAL, "out_of_memory", nullptr, 1,
                     kFailed, "out_of_memory"}),
    [](const auto& info) { return info.param.name; });

// One of each, and two of those that may: the job still succeeds.
TEST_F(FailureClassTest, NoneEatsAnothersBudget) {
  const std::string id = create_good().id();
  const std::vector<std::pair<iv1::Outcome, const char*>> ends = {
      {iv1::OUTCOME_FAIL_RETRY, "internal"},
      {iv1::OUTCOME_CRASH, "internal"},
      {iv1::OUTCOME_OOM, "out_of_memory"},
      {iv1::OUTCOME_DISK_FULL, "disk_full"},
      {iv1::OUTCOME_RELEASE, ""},
      {iv1::OUTCOME_FAIL_RETRY, "stalled"},
      {iv1::OUTCOME_CRASH, "internal"},
      {iv1::OUTCOME_DISK_FULL, "disk_full"},
      {iv1::OUTCOME_DISK_FULL, "disk_full"},
      {iv1::OUTCOME_RELEASE, ""}};
  for (const auto& [outcome, code] : ends) finish(next_attempt(), outcome, code);
  EXPECT_EQ(used(id),
            (Budget{{"failures", 2}, {"crashes", 2}, {"ooms", 1}, {"fulls", 3}, {"preempts", 2}}));
  EXPECT_EQ(finish_well(next_attempt()), "SUCCEEDED");
  const std::string metrics = http("/metrics");
  for (const char* end : {"fail_retry", "crash", "oom", "disk_full", "release", "success"})
    EXPECT_THAT(metrics, HasSubstr("end=\"" + std::string(end) + "\"")) << end;
}

// An agent that dies is a crash, whatever the job's failures were.
class LostWorkerTest : public FailureClassTest {};

TEST_F(LostWorkerTest, ALeaseThatRunsOutCountsAsACrash) {
  const std::string id = create_good().id();
  finish(next_attempt(), iv1::OUTCOME_FAIL_RETRY, "internal");
  ASSERT_EQ(next_attempt().attempt(), 2U);
  let_lease_run_out(id);
  ASSERT_TRUE(support::eventually([&] { return used(id).at("crashes") == 1; }));
  EXPECT_EQ(used(id),
            (Budget{{"failures", 1}, {"crashes", 1}, {"ooms", 0}, {"fulls", 0}, {"preempts", 0}}));
  EXPECT_EQ(next_attempt().attempt(), 3U);
}

// Three agents in a row, while another job goes on: jobs.md §13, P8.
TEST_F(LostWorkerTest, TheThirdTimeTheJobIsPoisonAndOthersGoOn) {
  const std::string id = create_good().id();
  for (int death = 1; death <= 3; ++death) {
    ASSERT_EQ(next_attempt().job_id(), id);
    let_lease_run_out(id);
    ASSERT_TRUE(support::eventually([&] { return used(id).at("crashes") == death; }));
  }
  EXPECT_EQ(get(id).state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(get(id).error().code(), "poison_job");
  EXPECT_EQ(get(id).error().category(), "SYSTEM");
  create_good();
  EXPECT_EQ(finish_well(next_attempt()), "SUCCEEDED");
}

}  // namespace
}  // namespace dex::server
