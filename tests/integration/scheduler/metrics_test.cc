// The metrics page: promtool accepts it, and it has what jobs.md §12 names.
#include <chrono>
#include <cstdlib>
#include <fstream>

#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {
namespace {

class MetricsTest : public SchedulerTest {};

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

}  // namespace
}  // namespace dex::server
