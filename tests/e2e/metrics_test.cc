#include <gmock/gmock.h>

#include <fstream>

#include "tests/e2e/small_job.h"

namespace dex {
namespace {

using support::RunningPlatform;
using testing::HasSubstr;

// What /metrics of one process answers, fetched by curl's place in promtool's pipe: a plain HTTP
// GET.
std::string scrape(const std::string& address, const std::filesystem::path& to) {
  const std::string host =
      address.substr(address.find("//") == std::string::npos ? 0 : address.find("//") + 2);
  const std::string port = host.substr(host.rfind(':') + 1);
  const std::string command =
      "exec 3<>/dev/tcp/127.0.0.1/" + port +
      "; printf 'GET /metrics HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n' >&3; sed '1,/^\\r$/d' <&3 >" +
      to.string();
  base::Subprocess::Options options;
  options.program = "bash";
  options.args = {"-c", command};
  auto process = base::Subprocess::start(options);
  EXPECT_TRUE(process.ok());
  (*process)->wait(20'000);
  std::ifstream in(to);
  return {std::istreambuf_iterator<char>(in), {}};
}

// jobs.md §12: every process, checked by promtool, and the names of that table.
TEST(MetricsTest, EveryProcessExportsWhatPromtoolAccepts) {
  const support::TemporaryDirectory directory;
  RunningPlatform platform(directory / "data");
  platform.start();
  const auto job = platform.ctl(
      support::with(support::small_job(platform.upload_rows("code", "train", 20),
                                       platform.upload_rows("code", "validation", 10), 3),
                    {"--follow"}));
  ASSERT_EQ(job.code, 0) << job.err;
  ASSERT_EQ(
      platform.ctl({"generate", "smollm2-135m-instruct", "--prompt", "a", "--max-tokens", "4"})
          .code,
      0);

  const std::map<std::string, std::vector<const char*>> names = {
      {"scheduler",
       {"dex_jobs{", "dex_job_submits_total", "dex_job_claims_total", "dex_job_finishes_total",
        "dex_queue_wait_seconds", "dex_job_run_seconds", "dex_lease_lost_total",
        "dex_stale_finish_total", "dex_reaper_last_sweep_timestamp_seconds", "dex_redis_up",
        "dex_redis_durable", "dex_redis_call_duration_seconds", "dex_workers{",
        "dex_rpc_duration_seconds", "dex_build_info"}},
      {"gateway",
       {"dex_gateway_snapshot_timestamp_seconds", "dex_gateway_requests_total", "dex_build_info"}},
      {"worker",
       {"dex_worker_state{", "dex_worker_heartbeat_timestamp_seconds", "dex_worker_disk_free_ratio",
        "dex_train_tokens_total", "dex_train_step_seconds", "dex_checkpoint_write_seconds",
        "dex_infer_requests_total", "dex_infer_time_to_first_token_seconds",
        "dex_infer_generation_tokens_total", "dex_build_info"}},
  };
  for (const auto& [process, expected] : names) {
    ASSERT_TRUE(platform.endpoints().at("metrics").contains(process)) << platform.endpoints();
    const auto file = directory / (process + ".txt");
    const std::string text = scrape(platform.endpoints()["metrics"][process], file);
    for (const char* name : expected) EXPECT_THAT(text, HasSubstr(name)) << process;
    base::Subprocess::Options options;
    options.program = "bash";
    options.args = {"-c", "promtool check metrics <" + file.string()};
    options.stdout_file = options.stderr_file = directory / (process + ".promtool");
    auto promtool = base::Subprocess::start(options);
    ASSERT_TRUE(promtool.ok());
    const auto status = (*promtool)->wait(30'000);
    std::ifstream said(options.stdout_file);
    EXPECT_TRUE(status && status->success())
        << process << ": " << std::string(std::istreambuf_iterator<char>(said), {});
  }
}

}  // namespace
}  // namespace dex
