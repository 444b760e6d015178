// What routers that know vLLM read of a worker.

#include "worker/agent/vllm_metrics.h"

#include <gmock/gmock.h>

#include "services/base/clock.h"
#include "worker/agent/metrics.h"
#include "worker/agent/request_table.h"

namespace dex::agent {
namespace {

using testing::HasSubstr;
using testing::Not;

class Nobody final : public ReplySink {
 public:
  bool event(dex::v1::GenerateStreamResponse) override { return true; }
  void finish(const dex::v1::GenerateStreamResponse::Finish&) override {}
  void fail(const base::Status&) override {}
};

VllmMetrics::Engine serving(const std::string& base) {
  return {.base = base,
          .most_running = 32,
          .running = 3,
          .waiting = 2,
          .kv_usage_ratio = 0.5,
          .kv_block_tokens = 16,
          .kv_blocks = 512};
}

TEST(VllmMetricsTest, AnAdapterRunsFromItsFirstTokenOn) {
  base::SystemClock clock;
  monitor::Registry registry("test", "1", "abc");
  InferenceMetrics metrics(registry);
  RequestTable table(16, clock, metrics);
  const auto sink = std::make_shared<Nobody>();
  (void)table.add(sink);  // of the base: in neither list
  const auto a = table.add(sink, "ft:a");
  (void)table.add(sink, "ft:b");
  (void)table.add(sink, "ft:a");
  dex::v1::GenerateStreamResponse token;
  token.mutable_delta()->set_text("x");
  table.event(*a, token);
  AdapterUse use;
  table.add_adapters(use);
  EXPECT_THAT(use.running, testing::ElementsAre("ft:a"));
  EXPECT_THAT(use.waiting, testing::ElementsAre("ft:a", "ft:b"));
  table.finish(*a, {});
  use = {};
  table.add_adapters(use);
  EXPECT_THAT(use.running, testing::IsEmpty());
}

TEST(VllmMetricsTest, ThereIsOneSeriesAndItSaysWhatIsNow) {
  monitor::Registry registry("test", "1", "abc");
  VllmMetrics metrics(registry, false);
  metrics.set({serving("smol")}, {{"ft:a"}, {"ft:b", "ft:c"}}, 1700000000);
  EXPECT_THAT(registry.text(), HasSubstr("vllm:lora_requests_info{max_lora=\"32\","
                                         "running_lora_adapters=\"ft:a\","
                                         "waiting_lora_adapters=\"ft:b,ft:c\"} 1700000000"));
  metrics.set({serving("smol")}, {}, 1700000001);
  const std::string page = registry.text();
  EXPECT_THAT(page, HasSubstr("vllm:lora_requests_info{max_lora=\"32\",running_lora_adapters=\"\","
                              "waiting_lora_adapters=\"\"} 1700000001"));
  EXPECT_THAT(page, Not(HasSubstr("ft:a"))) << "it is gone";
  EXPECT_THAT(page, Not(HasSubstr("vllm:num_requests"))) << "nobody asked for it";
}

TEST(VllmMetricsTest, TheRestComesWhenItIsAskedForByModel) {
  monitor::Registry registry("test", "1", "abc");
  VllmMetrics metrics(registry, true);
  metrics.set({serving("smol"), VllmMetrics::Engine{.base = "starting"}}, {}, 1);
  const std::string page = registry.text();
  for (const char* line :
       {"vllm:num_requests_running{model_name=\"smol\"} 3",
        "vllm:num_requests_waiting{model_name=\"smol\"} 2",
        "vllm:kv_cache_usage_perc{model_name=\"smol\"} 0.5",
        "vllm:cache_config_info{block_size=\"16\",model_name=\"smol\",num_gpu_blocks=\"512\"} 1",
        "vllm:num_requests_running{model_name=\"starting\"} 0", "max_lora=\"32\""}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  EXPECT_THAT(page, Not(HasSubstr("block_size=\"0\"")));
}

}  // namespace
}  // namespace dex::agent
