// Stride between tenants, and limits that take a tenant out of the ring (jobs.md §5).
#include "tests/integration/scheduler_store/store_fixture.h"

namespace dex::store {
namespace {

using ClaimAnswer = JobRepository::ClaimAnswer;

class FairnessTest : public StoreTest {
 protected:
  FairnessTest() { enlist("w1"); }
  void limits(const std::string& tenant, double weight, int running = 1000) {
    ASSERT_TRUE(store_->set_tenant(tenant, weight, 1000, running, 0).ok());
  }
  void fill(const std::string& tenant, int n, const std::string& base_model = "") {
    NewJob job;
    job.cost_gpu_seconds = 60;
    job.base_model = base_model;
    for (int i = 0; i < n; ++i) submit(tenant, job);
  }
  // Runs one job to its end, taking exactly its estimate.
  std::string serve(const std::string& worker = "w1") {
    const auto claimed = claim(worker);
    if (claimed.answer != ClaimAnswer::kJob) return "";
    clock_.advance_ms(60000);
    finish(claimed.job, worker, "success");
    return claimed.job.tenant;
  }
  // How many of the next n jobs are whose.
  std::map<std::string, int> serve_many(int n, const std::string& worker = "w1") {
    std::map<std::string, int> served;
    for (int i = 0; i < n; ++i) ++served[serve(worker)];
    return served;
  }
};

TEST_F(FairnessTest, TenantsAreServedByWeight) {
  limits("a", 1);
  limits("b", 1);
  limits("c", 2);
  fill("a", 30);
  fill("b", 10);
  fill("c", 20);
  std::map<std::string, int> served;
  for (int i = 0; i < 20; ++i) ++served[serve()];
  EXPECT_EQ(served["a"], 5);
  EXPECT_EQ(served["b"], 5);
  EXPECT_EQ(served["c"], 10);
}

TEST_F(FairnessTest, LateTenantGetsNoBackPay) {
  limits("a", 1);
  limits("d", 1);
  fill("a", 30);
  for (int i = 0; i < 10; ++i) serve();
  fill("d", 20);
  std::map<std::string, int> served;
  for (int i = 0; i < 10; ++i) ++served[serve()];
  EXPECT_LE(served["d"], 6);
  EXPECT_GE(served["d"], 4);
}

// A tenant whose jobs no worker present can take waits as if it were not there: its turn comes with
// the worker, and nothing for the time before.
TEST_F(FairnessTest, WhoNobodyPresentCanServeGetsNoBackPay) {
  enlist("w1", {"x"});
  limits("a", 1);
  limits("b", 1);
  fill("a", 30, "x");
  fill("b", 20, "y");
  EXPECT_EQ(serve_many(10)["a"], 10) << "past the head of the ring";
  enlist("w2", {"x", "y"});
  const auto served = serve_many(10, "w2");
  EXPECT_LE(served.at("b"), 6);
  EXPECT_GE(served.at("b"), 4);
}

// Nor is it the floor at which others enter the ring.
TEST_F(FairnessTest, WhoNobodyPresentCanServeLetsNobodyElseIn) {
  enlist("w1", {"x"});
  for (const char* tenant : {"a", "b", "c"}) limits(tenant, 1);
  fill("a", 30, "x");
  fill("b", 1, "y");
  serve_many(10);
  fill("c", 20, "x");
  const auto served = serve_many(10);
  EXPECT_LE(served.at("c"), 6);
  EXPECT_GE(served.at("c"), 4);
}

// Who waits for a worker that is busy, or whose job it would give back, has been served less.
TEST_F(FairnessTest, WhoWaitsForABusyWorkerKeepsItsTurn) {
  enlist("w1", {"x"});
  enlist("w2", {"y"});
  limits("a", 1);
  limits("b", 1);
  fill("a", 30, "x");
  fill("b", 20, "y");
  ASSERT_EQ(claim("w2").job.tenant, "b");
  EXPECT_EQ(serve_many(10)["a"], 10);
  enlist("w3", {"x", "y"});
  EXPECT_EQ(serve_many(5, "w3")["b"], 5);
  // One that takes no new jobs is not there.
  ASSERT_TRUE(workers_->drain("w2").ok());
  ASSERT_TRUE(workers_->gone("w3").ok());
  serve_many(10);
  enlist("w3", {"x", "y"});
  const auto served = serve_many(10, "w3");
  EXPECT_LE(served.at("b"), 6);
}

// Its place is its own: others who come, for workers that are free, do not enter there.
TEST_F(FairnessTest, WhoWaitsForABusyWorkerLetsNobodyElseIn) {
  enlist("w1", {"x"});
  enlist("w2", {"y"});
  for (const char* tenant : {"a", "b", "c"}) limits(tenant, 1);
  fill("a", 30, "x");
  fill("b", 20, "y");
  ASSERT_EQ(claim("w2").job.tenant, "b");
  EXPECT_EQ(serve_many(10)["a"], 10);
  fill("c", 20, "x");
  const auto served = serve_many(10);
  EXPECT_LE(served.at("c"), 6);
  EXPECT_GE(served.at("c"), 4);
}

// A tenant with one job that can run is served, and pays, whatever its other jobs wait for.
TEST_F(FairnessTest, OneJobThatCanRunIsATurn) {
  enlist("w1", {"x"});
  limits("a", 1);
  limits("b", 1);
  fill("b", 3, "y");
  fill("b", 5, "x");
  fill("a", 20, "x");
  const auto served = serve_many(10);
  EXPECT_EQ(served.at("a"), 5);
  EXPECT_EQ(served.at("b"), 5);
}

TEST_F(FairnessTest, ManyClaimsBeforeTheFirstEndAreChargedAtOnce) {
  limits("a", 1);
  limits("b", 1);
  fill("a", 10);
  fill("b", 10);
  std::map<std::string, int> served;
  for (int i = 0; i < 10; ++i) ++served[claim("w1", "", i).job.tenant];
  EXPECT_EQ(served["a"], 5);
}

TEST_F(FairnessTest, TenantAtItsLimitHidesNobody) {
  limits("a", 1, 1);
  limits("b", 1, 1);
  fill("a", 3);
  fill("b", 3);
  const auto first = claim("w1", "", 0);
  const auto second = claim("w1", "", 1);
  ASSERT_EQ(second.answer, ClaimAnswer::kJob);
  EXPECT_NE(first.job.tenant, second.job.tenant);
  EXPECT_EQ(claim("w1", "", 2).answer, ClaimAnswer::kNone);
  EXPECT_FALSE(job("ftjob-3", "a").tenant_in_ring);
  finish(first.job, "w1", "success");
  EXPECT_EQ(claim("w1", "", 2).job.tenant, first.job.tenant);
}

TEST_F(FairnessTest, RaisedLimitWorksAtOnce) {
  limits("a", 1, 1);
  fill("a", 2);
  ASSERT_EQ(claim("w1", "", 0).answer, ClaimAnswer::kJob);
  ASSERT_EQ(claim("w1", "", 1).answer, ClaimAnswer::kNone);
  limits("a", 1, 2);
  EXPECT_EQ(claim("w1", "", 1).answer, ClaimAnswer::kJob);
}

TEST_F(FairnessTest, SpentDayComesBackAtMidnight) {
  ASSERT_TRUE(store_->set_tenant("a", 1, 1000, 1000, 60).ok());
  fill("a", 2);
  ASSERT_EQ(serve(), "a");
  EXPECT_EQ(claim("w1").answer, ClaimAnswer::kNone);
  clock_.advance_ms(24 * 3600 * 1000);
  EXPECT_EQ(store_->sweep()->uncapped, 1);
  EXPECT_EQ(claim("w1").answer, ClaimAnswer::kJob);
}

TEST_F(FairnessTest, OneOfAHundredTenantsAtQuotaIsStillServed) {
  for (int i = 0; i < 100; ++i) {
    const std::string tenant = "t" + std::to_string(i);
    limits(tenant, 1, 1);
    fill(tenant, 2);
    ASSERT_EQ(claim("w1", "", i).answer, ClaimAnswer::kJob);
  }
  fill("last", 1);
  EXPECT_EQ(claim("w1", "", 100).job.tenant, "last");
}

}  // namespace
}  // namespace dex::store
