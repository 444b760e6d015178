#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/e2e/small_job.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::RunningPlatform;

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

// A row of jobs.md §12: a metric and the labels that its samples have.
struct Metric {
  const char* name;
  std::vector<const char*> labels = {};
};

// The whole table, by process. Only dex_worker_gpu_info is not here: it needs a GPU.
const std::map<std::string, std::vector<Metric>>& table() {
  static const std::map<std::string, std::vector<Metric>> metrics = {
      {"scheduler",
       {{"dex_jobs", {"state", "pool"}},
        {"dex_job_submits_total", {"kind", "outcome"}},
        {"dex_job_claims_total", {"pool"}},
        {"dex_job_attempts_total", {"pool", "end"}},
        {"dex_job_finishes_total", {"pool", "kind", "outcome"}},
        {"dex_queue_oldest_ready_seconds", {"pool"}},
        {"dex_queue_wait_seconds"},
        {"dex_job_run_seconds"},
        {"dex_lease_lost_total"},
        {"dex_stale_finish_total"},
        {"dex_reaper_last_sweep_timestamp_seconds"},
        {"dex_reconcile_fixes_total"},
        {"dex_redis_up"},
        {"dex_redis_durable"},
        {"dex_redis_memory_ratio"},
        {"dex_redis_call_duration_seconds", {"script"}},
        {"dex_redis_errors_total", {"class"}},
        {"dex_workers", {"pool", "state"}},
        {"dex_rpc_duration_seconds", {"method", "code"}},
        {"dex_build_info", {"process", "version", "commit"}}}},
      {"gateway",
       {{"dex_gateway_snapshot_timestamp_seconds"},
        {"dex_gateway_requests_total", {"method", "code"}},
        {"dex_gateway_rejected_total", {"reason"}},
        {"dex_rpc_duration_seconds", {"method", "code"}},
        {"dex_build_info", {"process", "version", "commit"}}}},
      {"worker",
       {{"dex_worker_state", {"worker", "state"}},
        {"dex_worker_heartbeat_timestamp_seconds"},
        {"dex_worker_disk_free_ratio"},
        {"dex_engine_restarts_total"},
        {"dex_train_tokens_total"},
        {"dex_train_step_seconds"},
        {"dex_train_nonfinite_total"},
        {"dex_checkpoint_write_seconds"},
        {"dex_checkpoint_bytes_total"},
        {"dex_checkpoint_failures_total"},
        {"dex_infer_requests_running"},
        {"dex_infer_requests_waiting"},
        {"dex_infer_requests_total", {"finished_reason"}},
        {"dex_infer_time_to_first_token_seconds"},
        {"dex_infer_inter_token_latency_seconds"},
        {"dex_infer_request_duration_seconds"},
        {"dex_infer_queue_duration_seconds"},
        {"dex_infer_prompt_tokens_total"},
        {"dex_infer_generation_tokens_total"},
        {"dex_infer_kv_cache_usage_ratio"},
        {"dex_infer_adapters_loaded", {"tier"}},
        {"dex_infer_adapter_bytes", {"tier"}},
        {"dex_infer_adapter_load_seconds"},
        {"dex_infer_adapter_load_failures_total"},
        {"vllm:lora_requests_info", {"max_lora", "running_lora_adapters", "waiting_lora_adapters"}},
        {"dex_rpc_duration_seconds", {"method", "code"}},
        {"dex_build_info", {"process", "version", "commit"}}}},
  };
  return metrics;
}

// Whether the page has a sample of the metric (a histogram's are its buckets) with all its labels.
bool has_sample(const std::string& page, const Metric& metric) {
  const std::string name = metric.name;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    const std::string rest = line.substr(name.size());
    if (!rest.starts_with("{") && !rest.starts_with(" ") && !rest.starts_with("_bucket{")) continue;
    const bool whole =
        std::all_of(metric.labels.begin(), metric.labels.end(), [&rest](const char* label) {
          return rest.find(std::string(label) + "=\"") != std::string::npos;
        });
    if (whole) return true;
  }
  return false;
}

// jobs.md §12: every process, checked by promtool, and every row of that table.
TEST(MetricsTest, EveryProcessExportsWhatPromtoolAccepts) {
  const support::TemporaryDirectory directory;
  RunningPlatform platform(directory / "data", support::write_tiny_model(directory / "models"));
  platform.start();
  const auto job = platform.ctl(support::with(
      support::small_job(platform.upload_rows("code", "train", 20),
                         platform.upload_rows("code", "validation", 10), 3, support::kTinyModel),
      {"--follow"}));
  ASSERT_EQ(job.code, 0) << job.err;
  const auto generate = [&platform](const std::string& model) {
    return platform.ctl({"generate", model, "--prompt", "a", "--max-tokens", "4"}).code;
  };
  ASSERT_EQ(generate(support::kTinyModel), 0);
  ASSERT_EQ(generate("no-such-model"), 3);  // refused by the gateway

  for (const auto& [process, expected] : table()) {
    ASSERT_TRUE(platform.endpoints().at("metrics").contains(process)) << platform.endpoints();
    const auto file = directory / (process + ".txt");
    // Some are sampled every few seconds and come with the first sample.
    std::string lacks;
    EXPECT_TRUE(support::eventually([&] {
      const std::string text = scrape(platform.endpoints()["metrics"][process], file);
      lacks.clear();
      for (const Metric& metric : expected) {
        if (!has_sample(text, metric)) lacks += std::string(" ") + metric.name;
      }
      return lacks.empty();
    })) << process
        << " lacks" << lacks;
    base::Subprocess::Options options;
    options.program = "bash";
    // Names of vLLM's are not what promtool asks for.
    options.args = {
        "-c", "grep -vE '^(# [A-Z]+ )?vllm:' <" + file.string() + " | promtool check metrics"};
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
