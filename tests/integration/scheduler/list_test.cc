// Lists of what is large: a page ends before a message would have too many bytes.
#include <set>
#include <string>

#include "scheduler/store/job_repository.h"
#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {
namespace {

class ListTest : public SchedulerTest {
 protected:
  // Jobs that show a name of 31 KB each. They come from the store, which takes many at once.
  std::set<std::string> submit_large(int count) {
    store::Store::Options options;
    options.redis.address = redis_.address();
    store::Store direct(options);
    EXPECT_TRUE(direct.set_tenant("default", 1, 1000, 2, 0).ok());
    v1::FineTuningJob shown;
    shown.set_display_name(std::string(31'000, 'n'));
    std::set<std::string> ids;
    for (int i = 0; i < count; ++i) {
      store::JobRepository::Submission submission;
      submission.request = {"request-" + std::to_string(i), "digest"};
      submission.jobs.resize(1);
      submission.jobs[0].id = "ftjob-" + std::to_string(i);
      submission.jobs[0].spec = shown.SerializeAsString();
      const auto submitted = store::JobRepository(direct).submit("default", submission);
      EXPECT_TRUE(submitted.ok()) << submitted.status().to_string();
      ids.insert(submission.jobs[0].id);
    }
    return ids;
  }
};

TEST_F(ListTest, APageOfLargeJobsEndsBeforeItsMessageIsTooLarge) {
  const auto made = submit_large(150);  // 4.6 MB; a message may have 4 MiB
  std::set<std::string> seen;
  v1::ListFineTuningJobsRequest list;
  list.set_page_size(1000);
  int pages = 0;
  do {
    const auto page = call(*jobs_, &JobStub::ListFineTuningJobs, list);
    ASSERT_TRUE(page.ok()) << page.status().to_string();
    for (const auto& job : page->jobs()) EXPECT_TRUE(seen.insert(job.id()).second) << job.id();
    list.set_page_token(page->next_page_token());
    ++pages;
  } while (!list.page_token().empty());
  EXPECT_EQ(seen, made);
  EXPECT_GT(pages, 1);
}

}  // namespace
}  // namespace dex::server
