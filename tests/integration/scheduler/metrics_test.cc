// The metrics page: promtool accepts it, and it has what jobs.md §12 names.
#include <chrono>
#include <cstdlib>
#include <fstream>

#include "scheduler/server/metrics.h"
#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {
namespace {

class MetricsTest : public SchedulerTest {
 protected:
  // Gauges of what Redis holds are of the last sweep, so a page may be a little behind.
  void wait_for(const std::vector<std::string>& parts) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::string missing;
    do {
      const std::string page = http("/metrics");
      missing.clear();
      for (const auto& part : parts) missing += page.find(part) == std::string::npos ? part : "";
    } while (!missing.empty() && std::chrono::steady_clock::now() < end);
    EXPECT_EQ(missing, "");
  }
};

TEST_F(MetricsTest, PageIsWellFormedAndComplete) {
  train_adapter();
  create_good();
  // The gauges of what Redis holds are of the last sweep: scrape until one came after the submit.
  std::string page;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  do {
    const std::string reply = http("/metrics");
    page = reply.substr(reply.find("\r\n\r\n") + 4);
  } while (page.find("dex_queue_oldest_ready_seconds{") == std::string::npos &&
           std::chrono::steady_clock::now() < end);
  for (const char* name :
       {"dex_jobs{", "dex_job_submits_total{", "dex_job_claims_total{", "dex_job_attempts_total{",
        "dex_job_finishes_total{", "dex_queue_oldest_ready_seconds{",
        "dex_queue_wait_seconds_bucket", "dex_job_run_seconds_bucket", "dex_lease_lost_total",
        "dex_stale_finish_total", "dex_reaper_last_sweep_timestamp_seconds",
        "dex_reconcile_fixes_total 0", "dex_redis_up 1", "dex_redis_durable 1",
        "dex_redis_memory_ratio", "dex_redis_call_duration_seconds_bucket{", "dex_workers{",
        "dex_rpc_duration_seconds", "dex_build_info{"}) {
    EXPECT_NE(page.find(name), std::string::npos) << name;
  }
  EXPECT_NE(page.find("outcome=\"succeeded\""), std::string::npos);
  const auto file = directory_ / "metrics.txt";
  std::ofstream(file) << page;
  EXPECT_EQ(std::system(("promtool check metrics < " + file.string()).c_str()), 0);
}

TEST_F(MetricsTest, JobsAreCountedByPublicStateAndClaimsOnce) {
  enlist();
  create_good();
  create_good();
  const auto checking = claim("w1", 0, "same").job();
  EXPECT_EQ(claim("w1", 0, "same").job().job_id(), checking.job_id());  // its answer was lost
  iv1::HeartbeatRequest beat;
  beat.set_worker_id("w1");
  auto& attempt = *beat.add_attempts();
  attempt.set_job_id(checking.job_id());
  attempt.set_epoch(checking.epoch());
  attempt.set_beat_seq(1);
  attempt.set_phase(v1::JOB_PHASE_VALIDATING);
  ASSERT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Heartbeat, beat).ok());
  wait_for({"dex_jobs{pool=\"cpu\",state=\"queued\"} 1",
            "dex_jobs{pool=\"cpu\",state=\"validating_files\"} 1",
            "dex_job_claims_total{pool=\"cpu\"} 1", "dex_queue_wait_seconds_count 1"});

  v1::CancelFineTuningJobRequest cancel;
  cancel.set_id(checking.job_id());
  ASSERT_TRUE(call(*jobs_, &v1::FineTuningService::Stub::CancelFineTuningJob, cancel).ok());
  wait_for({"dex_jobs{pool=\"cpu\",state=\"cancelling\"} 1",
            "dex_jobs{pool=\"cpu\",state=\"validating_files\"} 0"});
}

// Every state that an unfinished job may be in, by public name.
TEST(JobGaugeTest, StateNamesAreThoseOfTheApi) {
  const store::Store::Stats stats{{},
                                  {{1, "cpu", "READY", "run", "", ""},
                                   {2, "cpu", "DELAYED", "run", "", ""},
                                   {1, "cpu", "RUNNING", "run", "", ""},
                                   {1, "cpu", "RUNNING", "pause", "", ""},
                                   {4, "gpu1", "CANCELLING", "run", "", ""},
                                   {1, "cpu", "PAUSED", "run", "", ""}},
                                  {}};
  monitor::Registry registry("test", "1", "abc");
  Metrics metrics(registry);
  metrics.counted(stats);
  const std::string page = registry.text();
  for (const char* line : {"state=\"queued\"} 3", "state=\"running\"} 1", "state=\"pausing\"} 1",
                           "pool=\"gpu1\",state=\"cancelling\"} 4", "state=\"paused\"} 1"}) {
    EXPECT_NE(page.find(line), std::string::npos) << line << " in " << page;
  }
  EXPECT_EQ(page.find("delayed"), std::string::npos);
}

// Prometheus sees no increase of a series that begins with 1.
TEST(AlertedSeriesTest, ArePresentFromTheFirstLookAtAPoolOn) {
  monitor::Registry registry("test", "1", "abc");
  Metrics metrics(registry);
  metrics.counted({{{"cpu", 0.0}}, {}, {}});
  const std::string page = registry.text();
  for (const char* line :
       {"dex_job_claims_total{pool=\"cpu\"} 0",
        "dex_job_attempts_total{end=\"worker_lost\",pool=\"cpu\"} 0",
        "dex_job_finishes_total{kind=\"finetune\",outcome=\"poison_job\",pool=\"cpu\"} 0",
        "dex_job_finishes_total{kind=\"evaluation\",outcome=\"poison_job\",pool=\"cpu\"} 0"}) {
    EXPECT_NE(page.find(line), std::string::npos) << line << "\n" << page;
  }
}

TEST(WorkerGaugeTest, AWorkerOfTwoPoolsIsOneOfEach) {
  monitor::Registry registry("test", "1", "abc");
  Metrics metrics(registry);
  metrics.counted({{}, {}, {{"cpu gpu1", "up"}, {"cpu", "up"}, {"", "up"}}});
  const std::string page = registry.text();
  for (const char* line :
       {"dex_workers{pool=\"cpu\",state=\"up\"} 2", "dex_workers{pool=\"gpu1\",state=\"up\"} 1",
        "dex_workers{pool=\"none\",state=\"up\"} 1"}) {
    EXPECT_NE(page.find(line), std::string::npos) << line << "\n" << page;
  }
}

}  // namespace
}  // namespace dex::server
