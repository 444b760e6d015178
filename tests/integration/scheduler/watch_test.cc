// WatchFineTuningJob: snapshots, events, cursors, ends.
#include <latch>
#include <thread>
#include <utility>

#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {
namespace {

class WatchTest : public SchedulerTest {
 protected:
  struct Seen {
    std::vector<std::string> types;
    std::vector<int64_t> sequences;
    std::vector<v1::JobState> states;
    grpc::Status status;
  };
  // `begun` is counted down with its first message, or once none can come.
  Seen watch(const std::string& id, int64_t after = 0, std::latch* begun = nullptr) {
    grpc::ClientContext context;
    rpc::set_timeout(context, std::chrono::seconds(30));
    v1::WatchFineTuningJobRequest request;
    request.set_id(id);
    request.set_after_sequence(after);
    const auto reader = jobs_->WatchFineTuningJob(&context, request);
    Seen seen;
    v1::WatchFineTuningJobResponse message;
    while (reader->Read(&message)) {
      if (begun != nullptr) std::exchange(begun, nullptr)->count_down();
      if (message.has_snapshot()) seen.states.push_back(message.snapshot().state());
      if (!message.has_event()) continue;
      seen.types.push_back(message.event().type());
      seen.sequences.push_back(message.event().sequence());
    }
    if (begun != nullptr) begun->count_down();
    seen.status = reader->Finish();
    return seen;
  }
  static v1::FineTuningEvent point(int step) {
    v1::FineTuningEvent event;
    event.set_type("metrics");
    event.mutable_metrics()->set_step(static_cast<uint32_t>(step));
    return event;
  }
};

TEST_F(WatchTest, FollowsAJobFromQueueToEnd) {
  enlist();
  const auto job = create_good();
  Seen seen;
  std::jthread watcher([&] { seen = watch(job.id()); });
  const auto claimed = claim().job();
  beat(claimed, 1, "w1", {point(1), point(2)});
  finish_well(claimed);
  watcher.join();
  EXPECT_TRUE(seen.status.ok()) << seen.status.error_message();
  EXPECT_EQ(seen.types, (std::vector<std::string>{"job_queued", "job_start", "metrics", "metrics",
                                                  "job_complete"}));
  EXPECT_EQ(seen.sequences, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(seen.states.back(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(WatchTest, FinishedJobIsToldWholeAndAtOnce) {
  train_adapter();
  const auto list = call(*jobs_, &v1::FineTuningService::Stub::ListFineTuningJobs,
                         v1::ListFineTuningJobsRequest{});
  const std::string id = list->jobs(0).id();
  const auto all = watch(id);
  EXPECT_TRUE(all.status.ok());
  EXPECT_EQ(all.states, std::vector<v1::JobState>{v1::JOB_STATE_SUCCEEDED});
  EXPECT_EQ(all.types.size(), 3U);
  const auto rest = watch(id, 2);
  EXPECT_EQ(rest.types, std::vector<std::string>{"job_complete"});
  const auto nothing = watch(id, 3);
  EXPECT_TRUE(nothing.types.empty());
  EXPECT_TRUE(nothing.status.ok());
  EXPECT_EQ(nothing.states.size(), 1U);
}

TEST_F(WatchTest, ThousandsOfStoredEventsReachASlowStart) {
  enlist();
  const auto job = create_good();
  const auto claimed = claim().job();
  for (int i = 0; i < 20; ++i) {
    std::vector<v1::FineTuningEvent> events;
    for (int k = 0; k < 100; ++k) events.push_back(point(i * 100 + k));
    beat(claimed, i + 1, "w1", events);
  }
  finish_well(claimed);
  const auto seen = watch(job.id());
  EXPECT_TRUE(seen.status.ok()) << seen.status.error_message();
  ASSERT_EQ(seen.sequences.size(), 2003U);
  for (size_t i = 0; i < seen.sequences.size(); ++i)
    EXPECT_EQ(seen.sequences[i], static_cast<int64_t>(i + 1));
}

TEST_F(WatchTest, GoesOnOverARestartOfTheSchedulerWithoutGapOrRepeat) {
  enlist();
  const auto job = create_good();
  const auto claimed = claim().job();
  beat(claimed, 1, "w1", {point(1)});
  Seen first;
  std::latch begun(1);  // a call that came to a server which has stopped would hear nothing of it
  std::jthread watcher([&] { first = watch(job.id(), 0, &begun); });
  begun.wait();
  beat(claimed, 2, "w1", {point(2)});
  scheduler_->stop();
  watcher.join();
  EXPECT_EQ(rpc::from_grpc(first.status).reason(), "SERVER_DRAINING");
  restart();
  beat(claimed, 3, "w1", {point(3)});
  finish_well(claimed);
  const auto second = watch(job.id(), first.sequences.empty() ? 0 : first.sequences.back());
  std::vector<int64_t> all = first.sequences;
  all.insert(all.end(), second.sequences.begin(), second.sequences.end());
  EXPECT_EQ(all, (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
}

TEST_F(WatchTest, ManyWatchersOfOneJobAllSeeTheEnd) {
  enlist();
  const auto job = create_good();
  std::vector<Seen> seen(20);
  {
    std::vector<std::jthread> watchers;
    for (auto& one : seen) watchers.emplace_back([&] { one = watch(job.id()); });
    const auto claimed = claim().job();
    for (int i = 1; i <= 10; ++i) beat(claimed, i, "w1", {point(i)});
    finish_well(claimed);
  }
  for (const auto& one : seen) {
    EXPECT_TRUE(one.status.ok()) << one.status.error_message();
    EXPECT_EQ(one.sequences.size(), 13U);
    EXPECT_EQ(one.states.back(), v1::JOB_STATE_SUCCEEDED);
  }
}

TEST_F(WatchTest, UnknownJobAndBadCursor) {
  EXPECT_EQ(watch("ftjob-00000000000000000000000000").status.error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(watch(create_good().id(), -1).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(WatchTest, SeesWhatAnotherSchedulerDid) {
  auto other = start(options());
  enlist();
  const auto job = create_good();
  const auto claimed = claim().job();
  const auto elsewhere = v1::FineTuningService::NewStub(connected(other->grpc_address()));
  grpc::ClientContext context;
  rpc::set_timeout(context, std::chrono::seconds(20));
  v1::WatchFineTuningJobRequest request;
  request.set_id(job.id());
  const auto reader = elsewhere->WatchFineTuningJob(&context, request);
  v1::WatchFineTuningJobResponse message;
  ASSERT_TRUE(reader->Read(&message));
  finish_well(claimed);
  std::string last;
  while (reader->Read(&message)) {
    if (message.has_event()) last = message.event().type();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(last, "job_complete");
}

}  // namespace
}  // namespace dex::server
