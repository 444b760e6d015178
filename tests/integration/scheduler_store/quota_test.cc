// What submit refuses, whole (jobs.md §3, submit).
#include <thread>

#include "tests/integration/scheduler_store/store_fixture.h"
#include "tests/support/invariants.h"

namespace dex::store {
namespace {

class QuotaTest : public StoreTest {
 protected:
  JobRepository::Submission batch(int n) {
    JobRepository::Submission submission;
    const std::string stem = std::to_string(++next_);
    submission.request.id = "r" + stem;
    submission.request.digest = "s" + stem;
    submission.jobs.resize(n);
    for (int i = 0; i < n; ++i) submission.jobs[i].id = "ftjob-" + stem + "-" + std::to_string(i);
    return submission;
  }
  // Refused with this reason, and nothing was written.
  void refused(const JobRepository::Submission& submission, const std::string& reason) {
    const std::string before = dump_all(server());
    EXPECT_EQ(jobs_->submit("default", submission).status().reason(), reason);
    EXPECT_EQ(dump_all(server()), before);
  }
  void put_file(const std::string& id, const std::string& tenant, const std::string& state) {
    FileRecord file;
    file.id = id;
    file.state = state;
    file.sha256 = "sha-" + id;
    ASSERT_TRUE(files_->put(tenant, {"put-" + id, "x"}, file, 100).ok());
  }
};

TEST_F(QuotaTest, ABatchIsTakenWholeOrNotAtAll) {
  ASSERT_TRUE(jobs_->submit("default", batch(18)).ok());
  refused(batch(3), "QUOTA_EXCEEDED");
  EXPECT_TRUE(jobs_->submit("default", batch(2)).ok());
  refused(batch(1), "QUOTA_EXCEEDED");
}

TEST_F(QuotaTest, RefusedRequestIdIsFreeAgain) {
  ASSERT_TRUE(jobs_->submit("default", batch(20)).ok());
  auto later = batch(1);
  refused(later, "QUOTA_EXCEEDED");
  ASSERT_TRUE(jobs_->cancel("default", "ftjob-1-0", "room").ok());
  EXPECT_FALSE(jobs_->submit("default", later)->replayed);
}

TEST_F(QuotaTest, ParallelSubmittersNeverExceedTheQuota) {
  std::vector<JobRepository::Submission> all;
  for (int i = 0; i < 32; ++i) all.push_back(batch(1));
  {
    std::vector<std::jthread> threads;
    for (const auto& one : all) threads.emplace_back([&] { (void)jobs_->submit("default", one); });
  }
  EXPECT_EQ(zcard("twait:default"), 20);
}

TEST_F(QuotaTest, UniqueNamesAreHeldByOneLiveJob) {
  auto first = batch(1);
  first.jobs[0].unique_name = "nightly";
  ASSERT_TRUE(jobs_->submit("default", first).ok());
  auto second = batch(1);
  second.jobs[0].unique_name = "nightly";
  refused(second, "NAME_TAKEN");
  auto twice = batch(2);
  twice.jobs[0].unique_name = twice.jobs[1].unique_name = "weekly";
  refused(twice, "NAME_TAKEN");
  ASSERT_TRUE(jobs_->cancel("default", first.jobs[0].id, "").ok());
  EXPECT_TRUE(jobs_->submit("default", second).ok());
}

TEST_F(QuotaTest, FilesMustBeReadyAndOwn) {
  put_file("file-ready", "default", "READY");
  put_file("file-bad", "default", "INVALID");
  put_file("file-open", "default", "PROCESSING");
  put_file("file-theirs", "other", "READY");
  auto jobs = batch(2);
  const auto with = [&](const std::string& file) {
    jobs.jobs[1].files = {"file-ready", file};
    return jobs;
  };
  refused(with("file-bad"), "FILE_INVALID");
  refused(with("file-open"), "FILE_NOT_READY");
  refused(with("file-theirs"), "RESOURCE_NOT_FOUND");
  refused(with("file-none"), "RESOURCE_NOT_FOUND");
  EXPECT_TRUE(jobs_->submit("default", with("file-ready")).ok());
}

TEST_F(QuotaTest, AFileInUseStays) {
  put_file("file-a", "default", "READY");
  auto jobs = batch(1);
  jobs.jobs[0].files = {"file-a"};
  ASSERT_TRUE(jobs_->submit("default", jobs).ok());
  EXPECT_EQ(files_->get("default", "file-a")->users, std::vector<std::string>{jobs.jobs[0].id});
  EXPECT_EQ(files_->remove("default", "file-a").status().reason(), "FILE_IN_USE");
  ASSERT_TRUE(jobs_->cancel("default", jobs.jobs[0].id, "").ok());
  EXPECT_TRUE(files_->remove("default", "file-a")->last);
  EXPECT_EQ(files_->remove("default", "file-a").status().reason(), "RESOURCE_NOT_FOUND");
}

TEST_F(QuotaTest, TakenIdIsRefused) {
  auto first = batch(1);
  ASSERT_TRUE(jobs_->submit("default", first).ok());
  auto second = batch(1);
  second.jobs[0].id = first.jobs[0].id;
  refused(second, "ID_TAKEN");
}

TEST_F(QuotaTest, MarkedRepeatWithoutKeyFindsTheFirstCall) {
  auto first = batch(1);
  first.auto_hash = "route-and-body";
  ASSERT_TRUE(jobs_->submit("default", first).ok());
  auto again = batch(1);
  again.auto_hash = "route-and-body";
  again.request.digest = first.request.digest;
  again.marked_as_repeat = true;
  EXPECT_TRUE(jobs_->submit("default", again)->replayed);
  again.marked_as_repeat = false;  // the same body on purpose: a second job
  EXPECT_FALSE(jobs_->submit("default", again)->replayed);
}

}  // namespace
}  // namespace dex::store
