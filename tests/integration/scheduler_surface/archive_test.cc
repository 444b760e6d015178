// Ended jobs: their events on disk, and their end after the retention.
#include <algorithm>
#include <fstream>
#include <numeric>

#include "scheduler/server/job_events.h"
#include "tests/integration/scheduler_surface/surface_fixture.h"
#include "tests/support/eventually.h"

namespace dex::server {
namespace {

namespace fs = std::filesystem;
using support::eventually;

class ArchiveTest : public SurfaceTest {
 protected:
  ArchiveTest() {
    archive_after_ms_ = 200;
    restart_all();
  }
  void restart_all() {
    restart();
    reconnect();
  }
  // A job that runs and has sent `events` events.
  iv1::ClaimedJob running(int events) {
    enlist();
    create_good();
    const auto job = claim().job();
    send(job, 1, events);
    return job;
  }
  void send(const iv1::ClaimedJob& job, int64_t sequence, int events) {
    for (int sent = 0; sent < events; sent += 100) {
      std::vector<v1::FineTuningEvent> points;
      for (int i = sent; i < std::min(events, sent + 100); ++i) points.push_back(point(i));
      beat(job, sequence++, "w1", points);
    }
  }
  std::string key(const std::string& name) { return "dex:{s0}:" + name; }
  int64_t archived(const std::string& id) {
    return redis_.call({"HGET", key("job:" + id), "archived"}).as_int();
  }
  int64_t log_length(const std::string& id) {
    return redis_.call({"XLEN", key("log:" + id)}).as_int();
  }
  bool archived_up_to(const std::string& id, int64_t sequence) {
    return eventually([&] { return archived(id) == sequence; });
  }
  std::vector<int64_t> to(int64_t last, int64_t first = 1) {
    std::vector<int64_t> all(static_cast<size_t>(last - first + 1));
    std::iota(all.begin(), all.end(), first);
    return all;
  }
  std::vector<std::string> lines(const std::string& id) {
    std::ifstream file(folder_of(id) / "events.jsonl");
    std::vector<std::string> found;
    for (std::string line; std::getline(file, line);) found.push_back(line);
    return found;
  }
  // As if the job had ended long ago.
  void age(const std::string& id) {
    redis_.call({"HSET", key("job:" + id), "finished_ms", "1000000000000"});
    for (const char* set : {"done", "dead"})
      redis_.call({"ZADD", key(set), "XX", "1000000000000", id});
  }
};

TEST_F(ArchiveTest, EventsOfAnEndedJobAreReadFromItsArchive) {
  const auto job = running(300);
  EXPECT_FALSE(fs::exists(folder_of(job.job_id()) / "events.jsonl")) << "while it runs: no archive";
  ASSERT_EQ(finish_well(job), "SUCCEEDED");
  // job_queued, job_start, 300 points, job_complete.
  ASSERT_TRUE(archived_up_to(job.job_id(), 303));
  ASSERT_TRUE(eventually([&] { return log_length(job.job_id()) == 50; }));

  EXPECT_EQ(listed(job.job_id()), to(303));
  EXPECT_EQ(watched(job.job_id()), to(303));
  EXPECT_EQ(watched(job.job_id(), 120), to(303, 121)) << "from the middle of the archive";
  EXPECT_EQ(watched(job.job_id(), 280), to(303, 281)) << "from what the log still has";
  EXPECT_TRUE(watched(job.job_id(), 303).empty());

  const auto archive = lines(job.job_id());
  ASSERT_EQ(archive.size(), 303U);
  EXPECT_NE(archive[0].find("\"type\":\"job_queued\""), std::string::npos) << archive[0];
  EXPECT_NE(archive[2].find("\"train_loss\":3.5"), std::string::npos) << archive[2];
  EXPECT_NE(archive[302].find("\"type\":\"job_complete\""), std::string::npos) << archive[302];
}

TEST_F(ArchiveTest, NewestFirstGoesFromTheLogIntoTheArchive) {
  const auto job = running(300);
  const auto back = [&](int64_t before, int size) {
    v1::ListFineTuningEventsRequest request;
    request.set_id(job.job_id());
    request.set_newest_first(true);
    request.set_before_sequence(before);
    request.set_page_size(size);
    const auto page = call(*jobs_, &JobStub::ListFineTuningEvents, request);
    EXPECT_TRUE(page.ok()) << page.status().to_string();
    std::vector<int64_t> sequences;
    for (const auto& event : page->events()) sequences.push_back(event.sequence());
    if (page->has_more()) sequences.push_back(-1);
    return sequences;
  };
  const std::vector<int64_t> newest = {302, 301, 300, -1};
  EXPECT_EQ(back(0, 3), newest) << "while it runs, from the log";
  ASSERT_EQ(finish_well(job), "SUCCEEDED");
  ASSERT_TRUE(archived_up_to(job.job_id(), 303));
  ASSERT_TRUE(eventually([&] { return log_length(job.job_id()) == 50; }));
  EXPECT_EQ(back(0, 3), (std::vector<int64_t>{303, 302, 301, -1}));
  EXPECT_EQ(back(255, 3), (std::vector<int64_t>{254, 253, 252, -1})) << "over the log's beginning";
  EXPECT_EQ(back(100, 2), (std::vector<int64_t>{99, 98, -1})) << "from the archive alone";
  EXPECT_EQ(back(3, 5), (std::vector<int64_t>{2, 1}));
  EXPECT_TRUE(back(1, 5).empty());
}

TEST_F(ArchiveTest, AnEventReadsTheSameFromArchiveAndLog) {
  const auto job = running(100);
  v1::ListFineTuningEventsRequest request;
  request.set_id(job.job_id());
  const auto before = call(*jobs_, &JobStub::ListFineTuningEvents, request);
  ASSERT_TRUE(before.ok()) << before.status().to_string();
  ASSERT_EQ(finish_well(job), "SUCCEEDED");
  ASSERT_TRUE(archived_up_to(job.job_id(), 103));
  ASSERT_TRUE(eventually([&] { return log_length(job.job_id()) == 50; }));
  const auto after = call(*jobs_, &JobStub::ListFineTuningEvents, request);
  ASSERT_EQ(after->events_size(), before->events_size());
  for (int i = 0; i < before->events_size(); ++i)
    EXPECT_EQ(after->events(i).SerializeAsString(), before->events(i).SerializeAsString()) << i;
}

TEST_F(ArchiveTest, ARedrivenJobAddsToItsArchive) {
  const auto job = running(120);
  ASSERT_EQ(finish(job, iv1::OUTCOME_FAIL_FINAL, "loss_diverged"), "FAILED");
  ASSERT_TRUE(archived_up_to(job.job_id(), 123));
  ASSERT_TRUE(redrive(job.job_id()).ok());
  const auto again = claim().job();
  send(again, 1, 80);
  EXPECT_EQ(listed(job.job_id()), to(205)) << "archive, then log";
  ASSERT_EQ(finish_well(again), "SUCCEEDED");
  ASSERT_TRUE(archived_up_to(job.job_id(), 206));
  EXPECT_EQ(lines(job.job_id()).size(), 206U);
  EXPECT_EQ(watched(job.job_id()), to(206));
}

TEST_F(ArchiveTest, AnArchiveThatCantBeReadIsSaid) {
  const auto job = running(100);
  ASSERT_EQ(finish_well(job), "SUCCEEDED");
  ASSERT_TRUE(archived_up_to(job.job_id(), 103));
  ASSERT_TRUE(eventually([&] { return log_length(job.job_id()) == 50; }));
  std::ofstream(folder_of(job.job_id()) / "events.jsonl") << R"({"sequence":"1", torn)"
                                                          << "\n";
  grpc::Status status;
  watched(job.job_id(), 0, &status);
  EXPECT_EQ(rpc::from_grpc(status).reason(), "ARTIFACT_CORRUPT") << status.error_message();
}

TEST_F(ArchiveTest, AfterTheRetentionTheJobGoesAndItsAdapterStays) {
  const auto old = running(10);
  ASSERT_EQ(finish_well(old), "SUCCEEDED");
  const std::string adapter = get(old.job_id()).fine_tuned_model();
  const auto failed = create_good();
  const auto failing = claim().job();
  ASSERT_EQ(finish(failing, iv1::OUTCOME_FAIL_FINAL, "loss_diverged"), "FAILED");
  const auto young = create_good();
  ASSERT_EQ(finish_well(claim().job()), "SUCCEEDED");
  const auto waiting = create_good();
  age(old.job_id());
  age(failed.id());
  restart_all();  // it looks at the start, and then once an hour

  for (const std::string& id : {old.job_id(), failed.id()}) {
    EXPECT_TRUE(eventually([&] { return status_of(id).reason() == "RESOURCE_NOT_FOUND"; })) << id;
  }
  EXPECT_TRUE(status_of_adapter(adapter).ok());
  EXPECT_TRUE(fs::exists(directory_ / "data" / old.attempt_dir() / "final/checksums.json"));
  EXPECT_FALSE(fs::exists(folder_of(failed.id())));
  EXPECT_TRUE(status_of(young.id()).ok());
  EXPECT_TRUE(status_of(waiting.id()).ok());
}

TEST_F(ArchiveTest, ADeleteThatWasInterruptedIsFinished) {
  const auto job = running(10);
  ASSERT_EQ(finish(job, iv1::OUTCOME_FAIL_FINAL, "loss_diverged"), "FAILED");
  redis_.call({"HSET", key("job:" + job.job_id()), "purging", "1"});  // the mark, and no commit
  fs::create_directories(folder_of(job.job_id()) / "attempt-1");
  restart_all();
  EXPECT_TRUE(eventually([&] { return status_of(job.job_id()).reason() == "RESOURCE_NOT_FOUND"; }));
  EXPECT_FALSE(fs::exists(folder_of(job.job_id())));
}

TEST_F(ArchiveTest, AnArchiveThatADeleteOvertakesLeavesNothing) {
  const auto job = running(10);
  ASSERT_EQ(finish(job, iv1::OUTCOME_FAIL_FINAL, "loss_diverged"), "FAILED");
  const store::JobRepository::FinishedJob ended{
      job.job_id(), "default", "finetune", 1, 13, 0, false};  // as it was seen before
  ASSERT_TRUE(remove(job.job_id()).ok());
  store::Store::Options options;
  options.redis.address = redis_.address();
  store::Store redis(std::move(options));
  store::JobRepository jobs(redis);
  const DataLayout layout(directory_ / "data");
  const auto status = JobEvents(jobs, layout).archive(ended);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_FALSE(fs::exists(folder_of(job.job_id())));
}

}  // namespace
}  // namespace dex::server
