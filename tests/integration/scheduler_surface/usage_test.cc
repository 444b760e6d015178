// What tenants have used (api.md §2, GetUsage): counted once, by whom it was.
#include <gmock/gmock.h>

#include <chrono>
#include <regex>

#include "tests/integration/scheduler_surface/surface_fixture.h"
#include "tests/support/eventually.h"

namespace dex::server {
namespace {

class UsageTest : public SurfaceTest {
 protected:
  v1::GetUsageResponse usage(const std::string& tenant = "") {
    v1::GetUsageRequest request;
    request.set_tenant(tenant);
    const auto reply = call(*admin_, &AdminStub::GetUsage, request);
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    return reply.ok() ? *reply : v1::GetUsageResponse();
  }
  // A day may end between two counts: all days together.
  v1::GetUsageResponse::Day sum(const std::string& tenant = "") {
    v1::GetUsageResponse::Day all;
    const auto reply = usage(tenant);
    for (const auto& day : reply.days()) {
      all.set_trained_tokens(all.trained_tokens() + day.trained_tokens());
      all.set_device_seconds(all.device_seconds() + day.device_seconds());
      all.set_generations(all.generations() + day.generations());
      all.set_prompt_tokens(all.prompt_tokens() + day.prompt_tokens());
      all.set_generated_tokens(all.generated_tokens() + day.generated_tokens());
    }
    return all;
  }
  // A job that has run for a while: the store counts in milliseconds.
  iv1::ClaimedJob running_job() {
    enlist();
    create_good();
    auto job = claimed();
    const auto begin = std::chrono::steady_clock::now();
    support::eventually([begin] {
      return std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(5);
    });
    return job;
  }
  iv1::FinishRequest failure(const iv1::ClaimedJob& job, int64_t tokens) {
    iv1::FinishRequest request;
    request.set_worker_id("w1");
    request.set_job_id(job.job_id());
    request.set_epoch(job.epoch());
    request.set_outcome(iv1::OUTCOME_FAIL_FINAL);
    request.mutable_result()->set_trained_tokens(tokens);
    return request;
  }
};

TEST_F(UsageTest, ATrainingCountsOnceItHasEnded) {
  EXPECT_EQ(usage().days_size(), 0);
  const auto job = running_job();
  EXPECT_EQ(usage().days_size(), 0) << "what runs is not counted yet";
  ASSERT_EQ(finish_well(job), "SUCCEEDED");
  const auto day = sum();
  EXPECT_EQ(day.trained_tokens(), 4321) << "of the fixture's result";
  EXPECT_GT(day.device_seconds(), 0);
  EXPECT_EQ(day.generations(), 0);
  ASSERT_GE(usage().days_size(), 1);
  EXPECT_TRUE(std::regex_match(usage().days(0).date(), std::regex("\\d{4}-\\d\\d-\\d\\d")));
  EXPECT_EQ(usage().tenant(), "default");
}

TEST_F(UsageTest, AFailedAttemptHasUsedItsDeviceButTrainedNothing) {
  const auto job = running_job();
  const auto request = failure(job, 4096);  // a result that a failure has no right to
  ASSERT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Finish, request).ok());
  const double once = sum().device_seconds();
  EXPECT_GT(once, 0);
  EXPECT_EQ(sum().trained_tokens(), 0);
  ASSERT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Finish, request).ok());
  EXPECT_EQ(sum().device_seconds(), once) << "a repeat counts nothing";
}

TEST_F(UsageTest, AGatewaysReportCountsOnceForEachTenant) {
  iv1::ReportUseRequest report;
  report.set_report_id("r-1");
  for (const char* tenant : {"default", "team-a"}) {
    auto& row = *report.add_generated();
    row.set_tenant(tenant);
    row.set_prompt_tokens(100);
    row.set_generated_tokens(20);
    row.set_generations(2);
  }
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(call(*routes_, &iv1::RouteService::Stub::ReportUse, report).ok());
  }
  report.set_report_id("r-2");
  report.mutable_generated()->DeleteSubrange(1, 1);
  ASSERT_TRUE(call(*routes_, &iv1::RouteService::Stub::ReportUse, report).ok());
  EXPECT_EQ(sum().prompt_tokens(), 200);
  EXPECT_EQ(sum().generated_tokens(), 40);
  EXPECT_EQ(sum().generations(), 4);
  EXPECT_EQ(sum("team-a").generated_tokens(), 20);
  v1::GetUsageRequest wrong;
  wrong.set_days(401);
  EXPECT_EQ(call(*admin_, &AdminStub::GetUsage, wrong).status().reason(), "VALUE_OUT_OF_RANGE");
}

}  // namespace
}  // namespace dex::server
