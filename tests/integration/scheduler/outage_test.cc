// Redis missing, killed during a job, not durable: clear errors, and everything goes on afterwards.
#include <thread>

#include "services/rpc/status.h"
#include "tests/integration/scheduler/scheduler_fixture.h"
#include "tests/support/eventually.h"

namespace dex::server {
namespace {

using support::eventually;

class OutageTest : public SchedulerTest {
 protected:
  OutageTest() {
    store_patience_ = std::chrono::milliseconds(500);
    restart();
  }
  void wait_ready() {
    ASSERT_TRUE(eventually([&] { return scheduler_->ready().ok(); }));
  }
};

TEST_F(OutageTest, RedisKilledDuringAJobIsUnavailableAndThenGoesOn) {
  enlist();
  const auto job = create_good("kept");
  const auto claimed = claim().job();
  redis_.kill();
  v1::GetFineTuningJobRequest request;
  request.set_id(job.id());
  const auto status =
      call(*jobs_, &v1::FineTuningService::Stub::GetFineTuningJob, request).status();
  EXPECT_EQ(status.code(), base::Code::kUnavailable);
  EXPECT_EQ(status.reason(), "STORE_UNAVAILABLE");
  EXPECT_TRUE(rpc::retryable(status));
  ASSERT_TRUE(eventually([&] { return !scheduler_->ready().ok(); }));
  EXPECT_NE(http("/readyz").find("503"), std::string::npos);
  EXPECT_NE(http("/healthz").find("200"), std::string::npos);
  EXPECT_NE(http("/metrics").find("dex_redis_up 0"), std::string::npos);

  redis_.start();
  wait_ready();
  EXPECT_NE(http("/readyz").find("200"), std::string::npos);
  EXPECT_EQ(get(job.id()).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(beat(claimed, 1).attempts(0).verdict(), iv1::AttemptVerdict::VERDICT_OK);
  EXPECT_EQ(finish_well(claimed), "SUCCEEDED");
  EXPECT_EQ(get(job.id()).attempt(), 1U);
}

TEST_F(OutageTest, WatchStaysOpenOverAnOutage) {
  enlist();
  const auto job = create_good();
  const auto claimed = claim().job();
  grpc::ClientContext context;
  rpc::set_timeout(context, std::chrono::seconds(30));
  v1::WatchFineTuningJobRequest request;
  request.set_id(job.id());
  const auto reader = jobs_->WatchFineTuningJob(&context, request);
  v1::WatchFineTuningJobResponse message;
  ASSERT_TRUE(reader->Read(&message));
  redis_.restart();
  wait_ready();
  finish_well(claimed);
  std::string last;
  while (reader->Read(&message)) {
    if (message.has_event()) last = message.event().type();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(last, "job_complete");
}

TEST_F(OutageTest, SchedulerStartsBeforeItsRedis) {
  scheduler_.reset();
  redis_.kill();
  auto early = Scheduler::start(options());
  ASSERT_TRUE(early.ok()) << early.status().to_string();
  EXPECT_FALSE((*early)->ready().ok());
  scheduler_ = std::move(early).value();
  EXPECT_NE(http("/readyz").find("503"), std::string::npos);
  redis_.start();
  wait_ready();
}

TEST_F(OutageTest, RedisThatForgetsIsNotReady) {
  redis_.call({"CONFIG", "SET", "appendfsync", "everysec"});
  scheduler_.reset();
  auto started = Scheduler::start(options());
  ASSERT_TRUE(started.ok());
  scheduler_ = std::move(started).value();
  ASSERT_TRUE(eventually([&] { return scheduler_->ready().reason() == "STORE_NOT_DURABLE"; }));
  const std::string reply = http("/readyz");
  EXPECT_NE(reply.find("503"), std::string::npos);
  EXPECT_NE(reply.find("appendfsync"), std::string::npos);
  EXPECT_NE(http("/metrics").find("dex_redis_durable 0"), std::string::npos);
}

TEST_F(OutageTest, EverythingIsThereAfterARestartOfAll) {
  const std::string adapter = train_adapter();
  const auto queued = create_good();
  scheduler_.reset();
  redis_.restart();
  restart();
  EXPECT_EQ(get(queued.id()).state(), v1::JOB_STATE_QUEUED);
  v1::GetAdapterRequest request;
  request.set_id(adapter);
  EXPECT_TRUE(call(*adapters_, &v1::AdapterService::Stub::GetAdapter, request).ok());
  v1::GetFileRequest file;
  file.set_id(queued.training_file());
  EXPECT_EQ(call(*files_, &v1::FileService::Stub::GetFile, file)->state(), v1::FILE_STATE_READY);
}

}  // namespace
}  // namespace dex::server
