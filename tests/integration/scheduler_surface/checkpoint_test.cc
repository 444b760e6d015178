// CreateCheckpoint: from the user to the worker, and back once the checkpoint is there.
#include <thread>

#include "tests/integration/scheduler_surface/surface_fixture.h"
#include "tests/support/eventually.h"

namespace dex::server {
namespace {

class CheckpointTest : public SurfaceTest {
 protected:
  base::Result<v1::Checkpoint> create_checkpoint(const std::string& job,
                                                 const std::string& request_id = "",
                                                 bool* replayed = nullptr) {
    v1::CreateCheckpointRequest request;
    request.set_job(job);
    request.set_request_id(request_id);
    return call(*jobs_, &JobStub::CreateCheckpoint, request, 30000, replayed);
  }
  // Beats until one tells of a request, from `sequence` on, which grows; its id.
  std::string wait_for_request(const iv1::ClaimedJob& job, int64_t& sequence) {
    std::string id;
    EXPECT_TRUE(support::eventually([&] {
      id = beat_as(job, ++sequence, [](iv1::AttemptBeat&) {}).checkpoint_request();
      return !id.empty();
    }));
    return id;
  }
};

TEST_F(CheckpointTest, IsAnsweredByTheFirstOneThatTheWorkerOffersAfterwards) {
  enlist();
  const auto job = create_good();
  const auto claimed = claim().job();
  int64_t sequence = 0;
  beat_as(claimed, ++sequence,
          [&](iv1::AttemptBeat& beat) { offer(claimed, 2, *beat.mutable_checkpoint()); });
  base::Result<v1::Checkpoint> made = base::internal("not answered");
  {
    const std::jthread user([&] { made = create_checkpoint(job.id()); });
    const std::string asked = wait_for_request(claimed, sequence);
    EXPECT_TRUE(asked.starts_with("ftckpt-")) << asked;
    // Still the old one: not the answer.
    beat_as(claimed, ++sequence,
            [&](iv1::AttemptBeat& beat) { offer(claimed, 2, *beat.mutable_checkpoint()); });
    const auto verdict = beat_as(claimed, ++sequence, [&](iv1::AttemptBeat& beat) {
      offer(claimed, 7, *beat.mutable_checkpoint());
    });
    EXPECT_EQ(verdict.checkpoint_request(), "") << "it is answered";
  }
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->job(), job.id());
  EXPECT_EQ(made->step(), 7U);
  EXPECT_EQ(made->sha256(), "feed7");
  EXPECT_EQ(made->state(), v1::Checkpoint::STATE_READY);
  EXPECT_TRUE(made->verified());
  EXPECT_GT(made->create_time().seconds(), 1'700'000'000);
  EXPECT_EQ(get(job.id()).last_checkpoint(), "step-7");
}

// A training that is done saves no state any more; whoever asks hears so at the end of the job.
TEST_F(CheckpointTest, IsNotAnsweredByWhatIsKeptForTheGates) {
  enlist();
  const auto job = create_good();
  const auto claimed = claim().job();
  int64_t sequence = 0;
  base::Result<v1::Checkpoint> made = base::internal("not answered");
  {
    const std::jthread user([&] { made = create_checkpoint(job.id()); });
    const std::string asked = wait_for_request(claimed, sequence);
    const auto verdict = beat_as(claimed, ++sequence, [&](iv1::AttemptBeat& beat) {
      offer(claimed, 20, *beat.mutable_checkpoint());
      beat.mutable_checkpoint()->set_uri(claimed.attempt_dir() + "/gates-0");
    });
    EXPECT_EQ(verdict.checkpoint_request(), asked) << "it still waits";
    EXPECT_EQ(finish_well(claimed), "SUCCEEDED");
  }
  EXPECT_EQ(made.status().reason(), "JOB_STATE_CONFLICT") << made.status().to_string();
}

TEST_F(CheckpointTest, ARepeatGetsTheSameOne) {
  enlist();
  const auto job = create_good();
  const auto claimed = claim().job();
  int64_t sequence = 0;
  base::Result<v1::Checkpoint> first = base::internal("not answered");
  {
    const std::jthread user([&] { first = create_checkpoint(job.id(), "once"); });
    wait_for_request(claimed, sequence);
    beat_as(claimed, ++sequence,
            [&](iv1::AttemptBeat& beat) { offer(claimed, 3, *beat.mutable_checkpoint()); });
  }
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  bool replayed = false;
  const auto second = create_checkpoint(job.id(), "once", &replayed);
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_TRUE(replayed);
  EXPECT_EQ(second->id(), first->id());
  EXPECT_EQ(second->step(), 3U);
}

TEST_F(CheckpointTest, OnlyARunningJobCanSaveItsState) {
  const auto job = create_good();
  const auto status = create_checkpoint(job.id()).status();
  EXPECT_EQ(status.code(), base::Code::kFailedPrecondition);
  EXPECT_EQ(status.reason(), "JOB_STATE_CONFLICT");
  EXPECT_EQ(create_checkpoint("").status().reason(), "MISSING_FIELD");
  EXPECT_EQ(create_checkpoint("ftjob-00000000000000000000000000").status().reason(),
            "RESOURCE_NOT_FOUND");
}

TEST_F(CheckpointTest, AJobThatEndsWithoutItEndsTheWait) {
  enlist();
  const auto job = create_good();
  const auto claimed = claim().job();
  int64_t sequence = 0;
  base::Result<v1::Checkpoint> made = base::internal("not answered");
  {
    const std::jthread user([&] { made = create_checkpoint(job.id()); });
    wait_for_request(claimed, sequence);
    EXPECT_EQ(finish(claimed, iv1::OUTCOME_FAIL_FINAL, "loss_diverged"), "FAILED");
  }
  EXPECT_EQ(made.status().reason(), "JOB_STATE_CONFLICT") << made.status().to_string();
}

}  // namespace
}  // namespace dex::server
