// What operators see and change: quotas, workers out of service, the queue.
#include "scheduler/server/operations.h"

#include <cmath>
#include <initializer_list>
#include <optional>
#include <string>

#include "services/auth/authenticator.h"
#include "services/base/clock.h"
#include "services/base/random.h"
#include "tests/integration/scheduler_surface/surface_fixture.h"

namespace dex::server {
namespace {

using auth::Scope;
using base::Code;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class OperationsTest : public SurfaceTest {
 protected:
  base::Result<v1::Quota> quota(const std::string& tenant = "") {
    v1::GetQuotaRequest request;
    request.set_tenant(tenant);
    return call(*admin_, &AdminStub::GetQuota, request);
  }
  base::Result<v1::Quota> set(const v1::SetQuotaRequest& request, bool* replayed = nullptr) {
    return call(*admin_, &AdminStub::SetQuota, request, 20000, replayed);
  }
  base::Result<v1::Quota> set_running(uint32_t most) {
    v1::SetQuotaRequest request;
    request.set_max_running(most);
    return set(request);
  }
  base::Result<v1::ListWorkersResponse> list(int page_size = 0, const std::string& token = "") {
    v1::ListWorkersRequest request;
    request.set_page_size(page_size);
    request.set_page_token(token);
    return call(*admin_, &AdminStub::ListWorkers, request);
  }
  base::Result<v1::Worker> update(const std::string& id, std::optional<bool> draining) {
    v1::UpdateWorkerRequest request;
    request.set_id(id);
    if (draining) request.set_draining(*draining);
    return call(*admin_, &AdminStub::UpdateWorker, request);
  }
  v1::Queue::Pool queue_of(const std::string& pool) {
    v1::GetQueueRequest request;
    request.set_pool(pool);
    const auto queue = call(*admin_, &AdminStub::GetQueue, request);
    EXPECT_TRUE(queue.ok() && queue->pools_size() == 1) << queue.status().to_string();
    return queue.ok() && queue->pools_size() == 1 ? queue->pools(0) : v1::Queue::Pool();
  }
};

TEST_F(OperationsTest, AQuotaHoldsAtOnceAndSaysWhatIsUsed) {
  const auto usual = quota();
  ASSERT_TRUE(usual.ok()) << usual.status().to_string();
  EXPECT_EQ(usual->tenant(), "default");
  EXPECT_EQ(usual->weight(), 1);
  EXPECT_EQ(usual->max_queued(), 20U);
  EXPECT_EQ(usual->max_running(), 2U);
  EXPECT_EQ(usual->device_seconds_per_day(), 0);

  v1::SetQuotaRequest one;
  one.set_max_queued(1);
  const auto changed = set(one);
  ASSERT_TRUE(changed.ok()) << changed.status().to_string();
  EXPECT_EQ(changed->max_queued(), 1U);
  EXPECT_EQ(changed->max_running(), 2U) << "what is not set stays";
  const auto job = create_good();
  v1::CreateFineTuningJobRequest second;
  *second.mutable_spec() = spec(upload_good());
  EXPECT_EQ(create(second).status().reason(), "QUOTA_EXCEEDED");
  EXPECT_EQ(quota()->queued(), 1U);

  ASSERT_TRUE(set_running(0).ok());
  enlist();
  EXPECT_FALSE(claim().has_job());
  EXPECT_EQ(get(job.id()).waiting_reason(), v1::WAITING_REASON_QUOTA);
  ASSERT_TRUE(set_running(1).ok());
  EXPECT_EQ(claim().job().job_id(), job.id());
  EXPECT_EQ(quota()->running(), 1U);
  EXPECT_EQ(quota()->queued(), 0U);
}

TEST_F(OperationsTest, AQuotaOfAnotherEtagIsLeftAloneAndARepeatCountsOnce) {
  v1::SetQuotaRequest request;
  request.set_tenant("team-a");
  request.set_weight(2.5);
  request.set_request_id("once");
  const auto first = set(request);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ(first->tenant(), "team-a");
  bool replayed = false;
  EXPECT_EQ(set(request, &replayed)->etag(), first->etag());
  EXPECT_TRUE(replayed);
  request.set_weight(3);
  EXPECT_EQ(set(request).status().reason(), "IDEMPOTENCY_CONFLICT");

  request.clear_request_id();
  request.set_etag(first->etag());
  const auto next = set(request);
  ASSERT_TRUE(next.ok()) << next.status().to_string();
  EXPECT_NE(next->etag(), first->etag());
  const auto stale = set(request);
  EXPECT_EQ(stale.status().code(), Code::kAborted);
  EXPECT_EQ(stale.status().reason(), "ETAG_MISMATCH");
  EXPECT_THAT(stale.status().message(), HasSubstr("its etag is " + next->etag()));
  EXPECT_EQ(quota("team-a")->weight(), 3);
  EXPECT_EQ(quota()->weight(), 1) << "another tenant's";
}

TEST_F(OperationsTest, BadValuesOfAQuotaAreNamedAllAtOnce) {
  v1::SetQuotaRequest request;
  EXPECT_EQ(set(request).status().reason(), "MISSING_FIELD");
  request.set_weight(0);
  request.set_max_queued(100'001);
  request.set_max_running(10'001);
  request.set_device_seconds_per_day(std::nan(""));
  const auto refused = set(request).status();
  for (const char* field : {"weight", "max_queued", "max_running", "device_seconds_per_day"})
    expect_refused(refused, "VALUE_OUT_OF_RANGE", field);
  EXPECT_EQ(refused.violations().size(), 4U);
  EXPECT_EQ(quota()->etag(), "0") << "nothing was set";
  request.set_tenant("Not A Name");
  EXPECT_EQ(set(request).status().reason(), "INVALID_FIELD");
}

TEST_F(OperationsTest, AWorkerOutOfServiceGetsNoJobsUntilItIsBack) {
  enlist("w1");
  enlist("w2");
  const auto running = create_good();
  ASSERT_EQ(claim("w1").job().job_id(), running.id());
  const auto waiting = create_good();
  const auto drained = update("w1", true);
  ASSERT_TRUE(drained.ok()) << drained.status().to_string();
  EXPECT_EQ(drained->state(), v1::Worker::STATE_DRAINING);
  EXPECT_THAT(drained->jobs(), ElementsAre(running.id())) << "what it runs it ends";
  EXPECT_TRUE(claim("w1").has_drain());
  enlist("w1");  // as after a restart of its agent
  EXPECT_TRUE(claim("w1").has_drain());
  EXPECT_EQ(queue_of("cpu").workers(), 1U);
  EXPECT_EQ(claim("w2").job().job_id(), waiting.id());

  const auto third = create_good();
  EXPECT_EQ(update("w1", false)->state(), v1::Worker::STATE_UP);
  ASSERT_TRUE(set_running(3).ok());
  EXPECT_EQ(claim("w1", 0, "another-claim").job().job_id(), third.id());

  EXPECT_EQ(update("nobody", true).status().code(), Code::kNotFound);
  EXPECT_EQ(update("w1", std::nullopt).status().reason(), "MISSING_FIELD");
  EXPECT_EQ(update("", true).status().reason(), "MISSING_FIELD");
}

// Undone by whoever did it: an operator does not bring back what is about to end.
TEST_F(OperationsTest, AWorkerThatEndsByItselfIsNotBroughtBack) {
  enlist();
  iv1::DrainRequest request;
  request.set_worker_id("w1");
  ASSERT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Drain, request).ok());
  EXPECT_EQ(update("w1", false)->state(), v1::Worker::STATE_DRAINING);
  enlist();
  EXPECT_EQ(list()->workers(0).state(), v1::Worker::STATE_UP);
}

TEST_F(OperationsTest, WorkersAreListedByIdInPages) {
  for (const char* id : {"w3", "w1", "w2"}) enlist(id);
  const auto first = list(2);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  ASSERT_EQ(first->workers_size(), 2);
  EXPECT_EQ(first->workers(0).id(), "w1");
  EXPECT_EQ(first->workers(1).id(), "w2");
  EXPECT_THAT(first->workers(0).pools(), ElementsAre("cpu"));
  EXPECT_LT(first->workers(0).heartbeat_age_seconds(), 60);
  const auto second = list(2, first->next_page_token());
  ASSERT_EQ(second->workers_size(), 1);
  EXPECT_EQ(second->workers(0).id(), "w3");
  EXPECT_EQ(second->next_page_token(), "");
  EXPECT_EQ(list(1001).status().reason(), "VALUE_OUT_OF_RANGE");
  EXPECT_EQ(list(2, "a b").status().reason(), "INVALID_CURSOR");
}

TEST_F(OperationsTest, TheQueueSaysWhatWaitsForWhatAndNobodyElsesIds) {
  const auto usual = create_good();
  auto request = v1::CreateFineTuningJobRequest();
  *request.mutable_spec() = spec(upload_good());
  request.mutable_spec()->set_priority(6);
  const auto urgent = create(request);
  ASSERT_TRUE(urgent.ok()) << urgent.status().to_string();
  auto pool = queue_of("cpu");
  EXPECT_EQ(pool.waiting(), 2U);
  EXPECT_EQ(pool.running(), 0U);
  EXPECT_EQ(pool.workers(), 0U);
  ASSERT_EQ(pool.order_size(), 2);
  EXPECT_EQ(pool.order(0).job(), urgent->id());
  EXPECT_EQ(pool.order(0).priority(), 6U);
  EXPECT_EQ(pool.order(0).kind(), "finetune");
  EXPECT_EQ(pool.order(1).job(), usual.id());
  EXPECT_EQ(pool.order(1).position(), 2U);
  EXPECT_EQ(pool.order(1).reason(), v1::WAITING_REASON_CAPACITY);

  enlist("w1", {"another-model"});
  EXPECT_EQ(queue_of("cpu").order(0).reason(), v1::WAITING_REASON_MODEL);
  redis_.call({"HSET", "dex:{s0}:job:" + usual.id(), "tenant", "other"});
  pool = queue_of("cpu");
  EXPECT_EQ(pool.order(1).job(), "");
  EXPECT_EQ(pool.order(1).kind(), "finetune") << "it stands before others all the same";
  redis_.call({"HSET", "dex:{s0}:job:" + usual.id(), "tenant", "default"});

  v1::GetQueueRequest unknown;
  unknown.set_pool("gpu9");
  EXPECT_EQ(call(*admin_, &AdminStub::GetQueue, unknown).status().code(), Code::kNotFound);
  unknown.set_count(101);
  EXPECT_EQ(call(*admin_, &AdminStub::GetQueue, unknown).status().reason(), "VALUE_OUT_OF_RANGE");
}

// Called without gRPC, by whoever the test says.
TEST_F(OperationsTest, OnlyTheOperatorReachesOtherTenantsAndWorkers) {
  enlist();
  store::Store::Options options;
  options.redis.address = redis_.address();
  store::Store store(options);
  store::OperatorRepository operators(store);
  base::SystemClock clock;
  base::SystemRandom random;
  base::UlidGenerator ids(clock, random);
  Operations operations({operators, ids}, nullptr);
  const auto caller = [](const std::string& tenant, std::initializer_list<Scope> scopes) {
    return auth::Authenticator(tenant, scopes).authenticate({}).value();
  };
  const auto user = caller("default", {Scope::kJobsWrite}),
             admin = caller("team-a", {Scope::kAdmin}),
             operator_ = caller("default", {Scope::kAdmin});

  v1::GetQuotaRequest own, others;
  others.set_tenant("team-b");
  EXPECT_EQ(operations.quota(user, own).status().reason(), "SCOPE_MISSING");
  EXPECT_EQ(operations.quota(admin, own)->tenant(), "team-a");
  EXPECT_EQ(operations.quota(admin, others).status().code(), Code::kNotFound);
  EXPECT_EQ(operations.quota(operator_, others)->tenant(), "team-b");

  v1::SetQuotaRequest more;
  more.set_max_running(100);
  v1::UpdateWorkerRequest drain;
  drain.set_id("w1");
  drain.set_draining(true);
  for (const auto& who : {user, admin}) {
    EXPECT_EQ(operations.set_quota(who, more).status().code(), Code::kPermissionDenied);
    EXPECT_EQ(operations.update_worker(who, drain).status().code(), Code::kPermissionDenied);
  }
  EXPECT_EQ(operations.list_workers(user, {}).status().reason(), "SCOPE_MISSING");
  EXPECT_EQ(operations.queue(user, {}).status().reason(), "SCOPE_MISSING");

  create_good();
  const auto running = claim().job().job_id();
  EXPECT_THAT(operations.list_workers(admin, {})->workers(0).jobs(), IsEmpty());
  EXPECT_EQ(operations.list_workers(admin, {})->workers(0).running(), 1U);
  EXPECT_THAT(operations.list_workers(operator_, {})->workers(0).jobs(), ElementsAre(running));
  EXPECT_TRUE(operations.set_quota(operator_, more).ok());
}

}  // namespace
}  // namespace dex::server
