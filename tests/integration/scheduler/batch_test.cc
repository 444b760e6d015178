// Jobs that are made together: all or none.
#include <set>
#include <string>

#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {
namespace {

using Request = v1::BatchCreateFineTuningJobsRequest;
using testing::HasSubstr;

class BatchTest : public SchedulerTest {
 protected:
  base::Result<v1::BatchCreateFineTuningJobsResponse> make(const Request& request,
                                                           bool* replayed = nullptr) {
    return call(*jobs_, &JobStub::BatchCreateFineTuningJobs, request, 20'000, replayed);
  }
  Request rates(const std::string& file, std::initializer_list<double> values) {
    Request request;
    *request.mutable_spec() = spec(file);
    auto& axis = *request.add_sweep();
    axis.set_path("hyperparameters.learning_rate");
    for (const double value : values) axis.add_values()->set_number_value(value);
    return request;
  }
  int count() {
    return call(*jobs_, &JobStub::ListFineTuningJobs, v1::ListFineTuningJobsRequest{})->jobs_size();
  }
};

TEST_F(BatchTest, ASweepIsQueuedWholeAndFoundByItsId) {
  auto request = rates(upload_good(), {1e-5, 2e-5, 3e-5});
  request.set_request_id("sweep-once");
  auto checked = request;
  checked.set_validate_only(true);
  const auto resolved = make(checked);
  ASSERT_TRUE(resolved.ok()) << resolved.status().to_string();
  EXPECT_EQ(resolved->jobs_size(), 3);
  EXPECT_EQ(resolved->sweep_id(), "");
  EXPECT_EQ(count(), 0);

  const auto made = make(request);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  ASSERT_EQ(made->jobs_size(), 3);
  EXPECT_THAT(made->sweep_id(), testing::StartsWith("sweep-"));
  std::set<std::string> ids;
  for (int i = 0; i < 3; ++i) {
    const auto& job = made->jobs(i);
    ids.insert(job.id());
    EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED) << "queued, and not called started";
    EXPECT_EQ(job.metadata().at("sweep_id"), made->sweep_id());
    EXPECT_DOUBLE_EQ(job.effective_config().spec().hyperparameters().learning_rate(),
                     (i + 1) * 1e-5);
  }
  EXPECT_EQ(ids.size(), 3u);
  v1::ListFineTuningJobsRequest list;
  (*list.mutable_filter()->mutable_metadata())["sweep_id"] = made->sweep_id();
  EXPECT_EQ(call(*jobs_, &JobStub::ListFineTuningJobs, list)->jobs_size(), 3);

  bool replayed = false;
  const auto again = make(request, &replayed);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(replayed);
  EXPECT_EQ(again->sweep_id(), made->sweep_id());
  EXPECT_EQ(again->jobs(2).id(), made->jobs(2).id());
  EXPECT_EQ(count(), 3);
  request.mutable_sweep(0)->mutable_values(0)->set_number_value(9e-5);
  EXPECT_EQ(make(request).status().reason(), "IDEMPOTENCY_CONFLICT");
}

TEST_F(BatchTest, OneThatIsWrongStopsAllAndIsNamed) {
  const std::string file = upload_good();
  const auto refused = make(rates(file, {1e-5, -1}));
  EXPECT_EQ(refused.status().reason(), "VALUE_OUT_OF_RANGE");
  EXPECT_THAT(refused.status().message(),
              HasSubstr("job 2 of 2 (hyperparameters.learning_rate=-1)"));
  EXPECT_EQ(count(), 0);

  Request specs;
  *specs.add_specs() = spec(file);
  *specs.add_specs() = spec("file-01jdnothinglikethis00000000");
  EXPECT_THAT(make(specs).status().message(), HasSubstr("job 2 of 2"));
  (*specs.mutable_specs(0)->mutable_metadata())["sweep_id"] = "mine";
  EXPECT_EQ(make(specs).status().reason(), "CONFLICTING_FIELDS");
  EXPECT_EQ(count(), 0);
}

// The queue of a tenant has 20 places: 21 jobs find none, whatever was there.
TEST_F(BatchTest, WhereNotAllHavePlaceNoneIsQueued) {
  Request request;
  *request.mutable_spec() = spec(upload_good());
  auto& axis = *request.add_sweep();
  axis.set_path("seed");
  for (int seed = 1; seed <= 21; ++seed) axis.add_values()->set_number_value(seed);
  EXPECT_EQ(make(request).status().reason(), "QUOTA_EXCEEDED");
  EXPECT_EQ(count(), 0);
  request.mutable_sweep(0)->mutable_values()->RemoveLast();
  EXPECT_EQ(make(request)->jobs_size(), 20);
  EXPECT_EQ(count(), 20);
}

}  // namespace
}  // namespace dex::server
