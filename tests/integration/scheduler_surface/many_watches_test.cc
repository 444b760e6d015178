// More watched jobs than one read of the store takes.
#include <atomic>
#include <thread>

#include "services/rpc/room.h"
#include "tests/integration/scheduler_surface/surface_fixture.h"
#include "tests/support/eventually.h"

namespace dex::server {
namespace {

class ManyWatchesTest : public SurfaceTest {};

TEST_F(ManyWatchesTest, EachOfThemHearsOfItsJobsEnd) {
  constexpr size_t kJobs = 130;  // the store is read for a hundred at a time
  redis_.call({"HSET", "dex:{s0}:tenant:default", "max_queued", "1000"});
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  std::vector<std::string> ids;
  for (size_t i = 0; i < kJobs; ++i) {
    const auto job = create(request);
    ASSERT_TRUE(job.ok()) << job.status().to_string();
    ids.push_back(job->id());
  }
  std::vector<std::vector<int64_t>> seen(kJobs);
  std::atomic<size_t> begun = 0;
  {
    std::vector<std::jthread> watchers;
    for (size_t i = 0; i < kJobs; ++i) {
      watchers.emplace_back([&, i] {
        ++begun;
        seen[i] = watched(ids[i]);
      });
    }
    ASSERT_TRUE(support::eventually([&] { return begun == kJobs; }));
    for (const std::string& id : ids) {
      v1::CancelFineTuningJobRequest cancel;
      cancel.set_id(id);
      EXPECT_TRUE(call(*jobs_, &JobStub::CancelFineTuningJob, cancel).ok()) << id;
    }
  }
  for (size_t i = 0; i < kJobs; ++i)
    EXPECT_EQ(seen[i], (std::vector<int64_t>{1, 2})) << "queued and cancelled: " << ids[i];
}

// Deleted by another replica, before this one had a look at its last event.
TEST_F(ManyWatchesTest, AWatchOfAJobThatIsGoneEnds) {
  const auto job = create_good(), other = create_good();
  grpc::ClientContext context;
  rpc::set_timeout(context, std::chrono::seconds(60));
  v1::WatchFineTuningJobRequest request;
  request.set_id(job.id());
  const auto reader = jobs_->WatchFineTuningJob(&context, request);
  v1::WatchFineTuningJobResponse message;
  do {
    ASSERT_TRUE(reader->Read(&message));
  } while (!message.has_event());
  std::vector<int64_t> seen;
  std::jthread watcher([&] { seen = watched(other.id()); });
  for (const char* kind : {"job:", "spec:", "log:"})
    redis_.call({"DEL", "dex:{s0}:" + (kind + job.id())});
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(rpc::from_grpc(reader->Finish()).reason(), "RESOURCE_NOT_FOUND");

  v1::CancelFineTuningJobRequest cancel;
  cancel.set_id(other.id());
  EXPECT_TRUE(call(*jobs_, &JobStub::CancelFineTuningJob, cancel).ok());
  watcher.join();
  EXPECT_EQ(seen, (std::vector<int64_t>{1, 2})) << "and those of other jobs go on";
}

// All that a gateway's clients watch may come back within a moment, when a scheduler has started.
TEST(StreamRoomTest, ThousandsOfWatchesMayWaitForAThread) {
  EXPECT_GE(rpc::Room::Options{}.streams.queue_capacity, 5000U);
}

}  // namespace
}  // namespace dex::server
