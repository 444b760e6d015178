// Lists of jobs: filtered, and of what is large: a page ends before a message would have too many
// bytes.
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "scheduler/store/job_repository.h"
#include "services/rpc/times.h"
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

// The ids that a filter lets through, asked for page by page.
class JobFilterTest : public SchedulerTest {
 protected:
  using Filter = v1::ListFineTuningJobsRequest::Filter;

  v1::FineTuningJob made(const std::function<void(v1::FineTuningJobSpec&)>& change) {
    v1::CreateFineTuningJobRequest request;
    *request.mutable_spec() = spec(file_);
    change(*request.mutable_spec());
    const auto job = create(request);
    EXPECT_TRUE(job.ok()) << job.status().to_string();
    return job.ok() ? *job : v1::FineTuningJob();
  }
  std::vector<std::string> listed(const Filter& filter) {
    v1::ListFineTuningJobsRequest list;
    *list.mutable_filter() = filter;
    list.set_page_size(2);
    std::vector<std::string> ids;
    do {
      const auto page = call(*jobs_, &JobStub::ListFineTuningJobs, list);
      EXPECT_TRUE(page.ok()) << page.status().to_string();
      if (!page.ok()) break;
      for (const auto& job : page->jobs()) ids.push_back(job.id());
      list.set_page_token(page->next_page_token());
    } while (!list.page_token().empty());
    return ids;
  }
  base::Status refused(const Filter& filter) {
    v1::ListFineTuningJobsRequest list;
    *list.mutable_filter() = filter;
    return call(*jobs_, &JobStub::ListFineTuningJobs, list).status();
  }
  void upload_rows() { file_ = upload_good(); }
  std::string file_;
};

TEST_F(JobFilterTest, ByMethodSuffixAndText) {
  upload_rows();
  const auto dex = made([](auto& spec) { spec.set_suffix("Legal-2"); });
  const auto lora = made([](auto& spec) {
    spec.mutable_lora();
    spec.set_suffix("legal-3");
    spec.set_display_name("Contracts of OCTOBER");
  });
  const auto control = made([](auto& spec) {
    spec.mutable_kvo_only();
    (*spec.mutable_metadata())["team"] = "Notaries";
  });
  Filter filter;
  filter.set_method("dex");  // what a job without a method has become
  EXPECT_THAT(listed(filter), testing::ElementsAre(dex.id()));
  filter.set_method("kvo_only");
  EXPECT_THAT(listed(filter), testing::ElementsAre(control.id()));
  filter.clear_method();
  filter.set_suffix_prefix("LEGAL");
  EXPECT_THAT(listed(filter), testing::ElementsAre(lora.id(), dex.id()));
  filter.set_method("lora");
  EXPECT_THAT(listed(filter), testing::ElementsAre(lora.id()));
  filter.set_suffix_prefix("egal");
  EXPECT_THAT(listed(filter), testing::IsEmpty());
  filter.Clear();
  filter.set_text("october");
  EXPECT_THAT(listed(filter), testing::ElementsAre(lora.id()));
  filter.set_text("notar");
  EXPECT_THAT(listed(filter), testing::ElementsAre(control.id()));
  filter.set_text(dex.id().substr(10));
  EXPECT_THAT(listed(filter), testing::ElementsAre(dex.id()));

  filter.Clear();
  filter.set_method("lorra");
  const auto wrong = refused(filter);
  expect_refused(wrong, "INVALID_FIELD", "filter.method");
  EXPECT_THAT(wrong.message(), testing::HasSubstr("did you mean 'lora'"));
}

TEST_F(JobFilterTest, ByTimeFromAMomentOnAndUpToOne) {
  upload_rows();
  std::vector<v1::FineTuningJob> jobs;
  for (int i = 0; i < 5; ++i) jobs.push_back(made([](auto&) {}));
  // What the store's clock has given two of them may be one millisecond.
  const auto expected = [&](const auto& wanted) {
    std::vector<std::string> ids;
    for (auto job = jobs.rbegin(); job != jobs.rend(); ++job)
      if (wanted(rpc::unix_ms(job->create_time()))) ids.push_back(job->id());
    return ids;
  };
  const int64_t second = rpc::unix_ms(jobs[1].create_time());
  const int64_t fourth = rpc::unix_ms(jobs[3].create_time());
  Filter filter;
  *filter.mutable_created_after() = jobs[1].create_time();
  EXPECT_EQ(listed(filter), expected([&](int64_t at) { return at >= second; }));
  *filter.mutable_created_before() = rpc::timestamp(fourth + 1);
  EXPECT_EQ(listed(filter), expected([&](int64_t at) { return at >= second && at <= fourth; }));
  filter.clear_created_after();
  *filter.mutable_created_before() = jobs[3].create_time();
  EXPECT_EQ(listed(filter), expected([&](int64_t at) { return at < fourth; }));
  // Within the millisecond, too: the fourth job is before this moment.
  filter.mutable_created_before()->set_nanos(filter.created_before().nanos() + 1);
  EXPECT_EQ(listed(filter), expected([&](int64_t at) { return at <= fourth; }));

  *filter.mutable_created_after() = filter.created_before();
  expect_refused(refused(filter), "CONFLICTING_FIELDS", "filter.created_before");
  filter.Clear();
  filter.mutable_created_after()->set_seconds(std::numeric_limits<int64_t>::max());
  expect_refused(refused(filter), "INVALID_FIELD", "filter.created_after");
}

}  // namespace
}  // namespace dex::server
