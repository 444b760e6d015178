// How long priority can hold a job back, and whether another tenant's can (jobs.md §5, P10).
#include <string>

#include "tests/integration/scheduler_store/store_fixture.h"
#include "tests/support/figures.h"

namespace dex::store {
namespace {

class AgeingTest : public StoreTest {
 protected:
  AgeingTest() { enlist("w1"); }

  // Every 30 s one job of priority 9 comes and one job runs: how many seconds `id` waits.
  double seconds_until_claimed(const std::string& id) {
    constexpr int64_t kStep = 30'000;
    constexpr int kLongest = 300;
    for (int i = 0; i < kLongest; ++i) {
      NewJob urgent;
      urgent.id = "ftjob-" + std::to_string(i);
      urgent.priority = 9;
      submit("default", urgent);
      const auto claimed = claim("w1").job;
      finish(claimed, "w1", "success");
      if (claimed.id == id) return static_cast<double>(i) * kStep / 1000;
      clock_.advance_ms(kStep);
    }
    return -1;
  }
};

// 9 × 10 min and one step: at 5400 s both have the same score and the older id goes first, so the
// patient job's id is chosen to lose every tie.
TEST_F(AgeingTest, PriorityNoughtStartsAfter5430SecondsOfEndlessPriorityNine) {
  ASSERT_TRUE(store_->set_tenant("default", 1, 1000, 1000, 0).ok());
  NewJob patient;
  patient.id = "ftjob-z";
  patient.priority = 0;
  submit("default", patient);
  const double waited = seconds_until_claimed(patient.id);
  EXPECT_EQ(waited, 5430);
  support::figure("P10", "prio_0_waits_s", waited);
}

TEST_F(AgeingTest, AnUpdatedPriorityMovesTheJobInItsQueue) {
  const auto first = submit();
  clock_.advance_ms(1);
  const auto second = submit();
  EXPECT_EQ(job(second).queue_position, 2);
  ASSERT_TRUE(jobs_->update("default", second, {"", 5, {}, {}}).ok());
  EXPECT_EQ(job(second).queue_position, 1);
  EXPECT_EQ(claim("w1").job.id, second);
  // Of a running job it is kept for its next attempt.
  ASSERT_TRUE(jobs_->update("default", second, {"", 0, {}, {}}).ok());
  EXPECT_EQ(job(second).priority, 0);
}

TEST_F(AgeingTest, PriorityDoesNotOvertakeAnotherTenant) {
  NewJob job;
  job.cost_gpu_seconds = 10;
  job.priority = 0;
  const auto patient = submit("zoe", job);
  clock_.advance_ms(1);
  job.priority = 9;
  submit("adam", job);  // first in every tie
  submit("adam", job);
  EXPECT_EQ(claim("w1", "", 0).job.tenant, "adam");
  EXPECT_EQ(claim("w1", "", 1).job.id, patient);
}

}  // namespace
}  // namespace dex::store
