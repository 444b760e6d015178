// What a job's spec says of its queue: a deadline, a pool, a priority that only operators give.
#include <google/protobuf/util/time_util.h>

#include <filesystem>
#include <initializer_list>
#include <string>
#include <utility>

#include "scheduler/server/fine_tuning_jobs.h"
#include "scheduler/server/job_changes.h"
#include "services/auth/authenticator.h"
#include "services/base/clock.h"
#include "tests/integration/scheduler_surface/surface_fixture.h"
#include "tests/support/eventually.h"

namespace dex::server {
namespace {

using auth::Scope;
using google::protobuf::util::TimeUtil;

class LimitsTest : public SurfaceTest {
 protected:
  v1::CreateFineTuningJobRequest plain_request() {
    v1::CreateFineTuningJobRequest request;
    *request.mutable_spec() = spec(upload_good());
    return request;
  }
  v1::FineTuningJob create_with_deadline(double seconds) {
    auto request = plain_request();
    request.mutable_spec()->set_deadline_seconds(seconds);
    const auto job = create(request);
    EXPECT_TRUE(job.ok()) << job.status().to_string();
    return job.ok() ? *job : v1::FineTuningJob();
  }
  bool expires(const std::string& id) {
    return support::eventually([&] { return get(id).state() == v1::JOB_STATE_EXPIRED; },
                               support::kPatience_ms);
  }
  std::string last_event(const std::string& id) {
    v1::ListFineTuningEventsRequest request;
    request.set_id(id);
    const auto page = call(*jobs_, &JobStub::ListFineTuningEvents, request);
    EXPECT_TRUE(page.ok()) << page.status().to_string();
    return page.ok() && page->events_size() > 0 ? page->events(page->events_size() - 1).type() : "";
  }

  void enlist_in(const std::string& worker, const std::string& pool) {
    iv1::RegisterRequest request;
    request.set_worker_id(worker);
    request.add_pools(pool);
    request.set_slots(1);
    ASSERT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Register, request).ok());
  }
  // The id of the job that the worker gets from this pool; empty: none.
  std::string claim_in(const std::string& worker, const std::string& pool) {
    iv1::ClaimRequest request;
    request.set_worker_id(worker);
    request.set_claim_id("claim-in-" + pool + std::to_string(++next_));
    request.add_pools(pool);
    const auto reply = call(*workers_, &iv1::WorkerService::Stub::Claim, request);
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    return reply.ok() ? reply->job().job_id() : "";
  }
};

TEST_F(LimitsTest, AJobThatNobodyTakesExpiresAtItsDeadline) {
  const auto job = create_with_deadline(0.3);
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  ASSERT_TRUE(expires(job.id()));
  const auto ended = get(job.id());
  EXPECT_GE(TimeUtil::DurationToMilliseconds(ended.end_time() - ended.create_time()), 300);
  EXPECT_EQ(ended.error().code(), "deadline_exceeded");
  EXPECT_EQ(ended.error().category(), "USER");
  EXPECT_EQ(ended.attempt(), 0U);
  EXPECT_EQ(last_event(job.id()), "job_expired");
  grpc::Status end;
  EXPECT_FALSE(watched(job.id(), 0, &end).empty());
  EXPECT_TRUE(end.ok()) << "a watch ends with it: " << end.error_message();

  v1::ListFineTuningJobsRequest list;
  list.mutable_filter()->add_states(v1::JOB_STATE_EXPIRED);
  const auto found = call(*jobs_, &JobStub::ListFineTuningJobs, list);
  ASSERT_EQ(found->jobs_size(), 1);
  EXPECT_EQ(found->jobs(0).id(), job.id());
  EXPECT_NE(http("/metrics").find("outcome=\"expired\""), std::string::npos);
  enlist();
  EXPECT_FALSE(claim().has_job());
}

TEST_F(LimitsTest, ARunningJobIsStoppedAtItsDeadline) {
  enlist();
  const auto job = create_with_deadline(2);
  const auto claimed = claim().job();
  ASSERT_EQ(claimed.job_id(), job.id());
  int64_t sequence = 0;
  ASSERT_TRUE(support::eventually(
      [&] {
        return beat(claimed, ++sequence).attempts(0).verdict() ==
               iv1::AttemptVerdict::VERDICT_CANCEL;
      },
      support::kPatience_ms));
  EXPECT_EQ(get(job.id()).state(), v1::JOB_STATE_CANCELLING);
  EXPECT_EQ(finish(claimed, iv1::OUTCOME_CANCELLED), "CANCELLED");
  const auto ended = get(job.id());
  EXPECT_EQ(ended.state(), v1::JOB_STATE_EXPIRED);
  EXPECT_GE(TimeUtil::DurationToMilliseconds(ended.end_time() - ended.create_time()), 2000);
  EXPECT_EQ(ended.error().code(), "deadline_exceeded");
  EXPECT_EQ(ended.attempt(), 1U);
  EXPECT_EQ(last_event(job.id()), "job_expired");
}

TEST_F(LimitsTest, ARedrivenJobHasTheDeadlineOfItsNewLife) {
  enlist();
  const auto job = create_good();
  ASSERT_EQ(finish(claim().job(), iv1::OUTCOME_FAIL_FINAL, "loss_diverged"), "FAILED");
  v1::RedriveFineTuningJobRequest request;
  request.set_id(job.id());
  request.set_deadline_seconds(0.3);
  const auto redriven = call(*admin_, &AdminStub::RedriveFineTuningJob, request);
  ASSERT_TRUE(redriven.ok()) << redriven.status().to_string();
  EXPECT_EQ(redriven->state(), v1::JOB_STATE_QUEUED);
  ASSERT_TRUE(expires(job.id()));
  EXPECT_EQ(get(job.id()).error().code(), "deadline_exceeded") << "not that of its first life";
}

TEST_F(LimitsTest, AJobIsClaimedInItsOwnPoolOnly) {
  enlist_in("w1", "cpu");
  enlist_in("w2", "gpu1");
  auto request = plain_request();
  request.mutable_spec()->set_pool("gpu1");
  const auto on_gpu = create(request);
  ASSERT_TRUE(on_gpu.ok()) << on_gpu.status().to_string();
  EXPECT_EQ(on_gpu->effective_config().spec().pool(), "gpu1");
  EXPECT_EQ(claim_in("w1", "cpu"), "");

  const auto on_cpu = create_good();
  EXPECT_EQ(on_cpu.effective_config().spec().pool(), "cpu");
  EXPECT_EQ(claim_in("w2", "gpu1"), on_gpu->id());
  EXPECT_EQ(claim_in("w2", "gpu1"), "");
  EXPECT_EQ(claim_in("w1", "cpu"), on_cpu.id());

  request.mutable_spec()->set_pool("GPU 1");
  EXPECT_EQ(create(request).status().reason(), "INVALID_FIELD");
}

TEST_F(LimitsTest, AnOperatorsPriorityGoesFirst) {
  enlist();
  const auto usual = create_good();
  auto request = plain_request();
  request.mutable_spec()->set_priority(9);  // this machine has every scope
  const auto urgent = create(request);
  ASSERT_TRUE(urgent.ok()) << urgent.status().to_string();
  EXPECT_EQ(urgent->priority(), 9U);
  EXPECT_EQ(claim().job().job_id(), urgent->id());
  EXPECT_EQ(claim().job().job_id(), usual.id());
}

// The same services as the scheduler's, on the same data, called without gRPC: by whoever a test
// says.
struct ServicesOfOurs {
  ServicesOfOurs(const store::RedisAddress& redis, const std::filesystem::path& data,
                 ModelCatalog models)
      : catalog(std::move(models)), store(options_of(redis)), layout(data) {}

  static store::Store::Options options_of(const store::RedisAddress& redis) {
    store::Store::Options options;
    options.redis.address = redis;
    return options;
  }

  const ModelCatalog catalog;
  base::SystemClock clock;
  base::SystemRandom random;
  monitor::Registry registry{"test", "0", "0"};
  Metrics metrics{registry};
  base::UlidGenerator ids{clock, random};
  store::Store store;
  store::JobRepository records{store};
  store::FileRepository files{store};
  store::AdapterRepository adapters{store};
  store::WorkerRepository workers{store};
  DataLayout layout;
  JobEvents events{records, layout};
  FineTuningJobs jobs{
      {store, records, files, adapters, workers, events, catalog, layout, metrics, ids, random},
      {}};
  JobChanges changes{{store, records, adapters, layout, ids}, nullptr};
};

auth::Principal caller(std::initializer_list<Scope> scopes) {
  return auth::Authenticator("default", scopes).authenticate({}).value();
}

TEST_F(LimitsTest, PrioritiesFromSevenOnNeedTheScopeAdmin) {
  auto models = ModelCatalog::load(directory_ / "models/models.json");
  ASSERT_TRUE(models.ok()) << models.status().to_string();
  ServicesOfOurs ours(redis_.address(), directory_ / "data", std::move(models).value());
  const auto user = caller({Scope::kJobsWrite});
  const auto operator_ = caller({Scope::kJobsWrite, Scope::kAdmin});

  auto request = plain_request();
  const auto refused = [](const base::Status& status) {
    EXPECT_EQ(status.code(), base::Code::kPermissionDenied) << status.to_string();
    EXPECT_EQ(status.reason(), "SCOPE_MISSING");
    EXPECT_NE(status.message().find("'admin'"), std::string::npos) << status.message();
  };
  for (const uint32_t priority : {7U, 8U, 9U}) {
    request.mutable_spec()->set_priority(priority);
    refused(ours.jobs.create(user, request).status());
    request.set_validate_only(true);
    refused(ours.jobs.create(user, request).status());
    request.set_validate_only(false);
  }
  EXPECT_TRUE(ours.jobs.create(operator_, request).ok());
  request.mutable_spec()->set_priority(10);
  EXPECT_EQ(ours.jobs.create(user, request).status().reason(), "VALUE_OUT_OF_RANGE");
  request.mutable_spec()->set_priority(6);
  const auto job = ours.jobs.create(user, request);
  ASSERT_TRUE(job.ok()) << job.status().to_string();

  v1::UpdateFineTuningJobRequest update;
  update.set_id(job->reply.id());
  update.set_priority(7);
  refused(ours.changes.update(user, update).status());
  EXPECT_EQ(get(update.id()).priority(), 6U);
  const auto updated = ours.changes.update(operator_, update);
  ASSERT_TRUE(updated.ok()) << updated.status().to_string();
  EXPECT_EQ(updated->reply.priority(), 7U);
}

}  // namespace
}  // namespace dex::server
