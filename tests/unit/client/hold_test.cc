// dexctl jobs create --hold: what the server is asked for, and when the watching ends.
#include <gmock/gmock.h>

#include <optional>
#include <string>

#include "client/cli/exit_code.h"
#include "tests/unit/client/jobs_command.h"

namespace dex::cli {
namespace {

using testing::HasSubstr;

// A job that runs, then is held; its watch goes on until whoever watches has enough.
class HeldJobs final : public v1::FineTuningService::Service {
 public:
  grpc::Status EstimateFineTuningJob(grpc::ServerContext*, const v1::EstimateFineTuningJobRequest*,
                                     v1::Estimate* reply) override {
    reply->set_allowed_to_proceed(true);
    return grpc::Status::OK;
  }
  grpc::Status CreateFineTuningJob(grpc::ServerContext*,
                                   const v1::CreateFineTuningJobRequest* request,
                                   v1::FineTuningJob* reply) override {
    created = request->spec();
    reply->set_id("ftjob-1");
    return grpc::Status::OK;
  }
  grpc::Status WatchFineTuningJob(
      grpc::ServerContext* context, const v1::WatchFineTuningJobRequest*,
      grpc::ServerWriter<v1::WatchFineTuningJobResponse>* writer) override {
    v1::WatchFineTuningJobResponse message;
    message.mutable_snapshot()->set_state(v1::JOB_STATE_RUNNING);
    writer->Write(message);
    message.mutable_event()->set_type("estimate_updated");
    message.mutable_event()->set_sequence(1);
    message.mutable_event()->set_message("checked: one update took 2 s");
    writer->Write(message);
    *message.mutable_snapshot() = held();
    writer->Write(message);
    while (!context->IsCancelled()) {
      message.mutable_heartbeat()->set_last_sequence(1);
      if (!writer->Write(message)) break;
    }
    return grpc::Status::OK;
  }
  grpc::Status GetFineTuningJob(grpc::ServerContext*, const v1::GetFineTuningJobRequest*,
                                v1::FineTuningJob* reply) override {
    *reply = held();
    return grpc::Status::OK;
  }

  std::optional<v1::FineTuningJobSpec> created;

 private:
  static v1::FineTuningJob held() {
    v1::FineTuningJob job;
    job.set_id("ftjob-1");
    job.set_state(v1::JOB_STATE_PAUSED);
    job.set_pause_reason(v1::PAUSE_REASON_AWAITING_START);
    return job;
  }
};

class HoldTest : public JobsCommandTest<HeldJobs> {
 protected:
  int create(const std::string& flags) {
    return jobs("create --model small --training-file file-1 --yes " + flags);
  }
};

TEST_F(HoldTest, OnlyAHeldJobDoesNotStartByItself) {
  EXPECT_EQ(create("--hold"), kDone) << said_;
  ASSERT_TRUE(jobs_.created);
  EXPECT_TRUE(jobs_.created->has_auto_start());
  EXPECT_FALSE(jobs_.created->auto_start());
  EXPECT_EQ(create(""), kDone) << said_;
  EXPECT_FALSE(jobs_.created->has_auto_start()) << "the server's default";
}

TEST_F(HoldTest, FollowedItEndsTheWatchingOnceItIsChecked) {
  EXPECT_EQ(create("--hold --follow"), kDone) << said_;
  EXPECT_THAT(said_, HasSubstr("checked: one update took 2 s"));
  EXPECT_THAT(said_, HasSubstr("start it: dexctl jobs resume ftjob-1"));
  EXPECT_THAT(shown_, HasSubstr("checked, waits for its start"));
}

}  // namespace
}  // namespace dex::cli
