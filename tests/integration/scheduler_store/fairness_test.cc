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
  void fill(const std::string& tenant, int n) {
    NewJob job;
    job.cost_gpu_seconds = 60;
    for (int i = 0; i < n; ++i) submit(tenant, job);
  }
  // Runs one job to its end, taking exactly its estimate.
  std::string serve() {
    const auto claimed = claim("w1");
    if (claimed.answer != ClaimAnswer::kJob) return "";
    clock_.advance_ms(60000);
    finish(claimed.job, "w1", "success");
    return claimed.job.tenant;
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
