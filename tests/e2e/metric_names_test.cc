// What deploy/monitoring asks for is there: a real Prometheus beside a real platform.

#include <gmock/gmock.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <set>

#include "tests/e2e/small_job.h"
#include "tests/support/content_of.h"
#include "tests/support/paths.h"
#include "tests/support/prometheus_api.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::eventually;
using support::prometheus_data;
using support::RunningPlatform;
using testing::IsEmpty;

// A scrape, two evaluations and what a loaded machine adds.
constexpr int64_t kSeen_ms = 180'000;

std::set<std::string> strings(const nlohmann::json& list) {
  std::set<std::string> result;
  for (const auto& item : list) result.insert(item.get<std::string>());
  return result;
}

// Names in dashboards and rules, recorded ones too, as tests/unit/deploy/monitoring reads them.
std::set<std::string> names_that_are_used() {
  const support::TemporaryDirectory directory;
  base::Subprocess::Options options;
  options.program = "python3";
  options.args = {"-B", support::source_dir() / "tests/unit/deploy/monitoring/repository.py"};
  options.stdout_file = directory / "names";
  auto process = base::Subprocess::start(options);
  EXPECT_TRUE(process.ok());
  const auto exit = (*process)->wait(60'000);
  EXPECT_TRUE(exit && exit->success());
  std::ifstream in(directory / "names");
  std::set<std::string> names;
  for (std::string name; std::getline(in, name);) names.insert(name);
  return names;
}

class MonitoringTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = std::make_unique<support::TemporaryDirectory>();
    platform_ = std::make_unique<RunningPlatform>(
        *directory_ / "data", support::write_tiny_model(*directory_ / "models"));
    platform_->start({"--with-prometheus"});
  }
  static void TearDownTestSuite() {
    EXPECT_EQ(platform_->stop(), 0);
    platform_.reset();
    directory_.reset();
  }

  static std::string prometheus() { return platform_->endpoints().at("prometheus"); }
  // "DexRedisDown" … of what fires now.
  static std::set<std::string> firing() {
    std::set<std::string> names;
    const auto data = prometheus_data(prometheus(), "alerts");
    if (!data.is_object()) return {"Prometheus does not answer"};
    for (const auto& alert : data.at("alerts")) {
      if (alert.at("state") == "firing") names.insert(alert.at("labels").at("alertname"));
    }
    return names;
  }
  static int generate(const std::string& model) {
    return platform_->ctl({"generate", model, "--prompt", "a", "--max-tokens", "4"}).code;
  }

  static std::unique_ptr<support::TemporaryDirectory> directory_;
  static std::unique_ptr<RunningPlatform> platform_;
};
std::unique_ptr<support::TemporaryDirectory> MonitoringTest::directory_;
std::unique_ptr<RunningPlatform> MonitoringTest::platform_;

TEST_F(MonitoringTest, EveryNameInDashboardsAndRulesIsExportedAndNothingFires) {
  const auto job = platform_->ctl(support::with(
      support::small_job(platform_->upload_rows("code", "train", 20),
                         platform_->upload_rows("code", "validation", 10), 3, support::kTinyModel),
      {"--follow"}));
  ASSERT_EQ(job.code, 0) << job.err;
  ASSERT_EQ(generate(support::kTinyModel), 0);
  ASSERT_EQ(generate("no-such-model"), 3);  // refused by the gateway

  const std::set<std::string> used = names_that_are_used();
  ASSERT_GT(used.size(), 60u);
  std::set<std::string> lacking;
  EXPECT_TRUE(eventually(
      [&] {
        const auto known = prometheus_data(prometheus(), "label/__name__/values");
        lacking = used;
        if (!known.is_array()) return false;
        for (const auto& name : strings(known)) lacking.erase(name);
        return lacking.empty();
      },
      kSeen_ms));
  EXPECT_THAT(lacking, IsEmpty());

  const std::map<std::string, std::string> all_up = {
      {"dex-gateway", "up"}, {"dex-scheduler", "up"}, {"dex-worker", "up"}};
  EXPECT_EQ(support::target_health(prometheus()), all_up);
  EXPECT_THAT(firing(), IsEmpty());
}

TEST_F(MonitoringTest, EveryRuleIsEvaluated) {
  std::map<std::string, std::string> wrong;
  EXPECT_TRUE(eventually(
      [&] {
        wrong.clear();
        const auto data = prometheus_data(prometheus(), "rules");
        if (!data.is_object()) return false;
        for (const auto& group : data.at("groups")) {
          for (const auto& rule : group.at("rules")) {
            if (rule.at("health") != "ok")
              wrong[rule.at("name")] =
                  rule.value("lastError", rule.at("health").get<std::string>());
          }
        }
        return wrong.empty();
      },
      kSeen_ms));
  EXPECT_THAT(wrong, IsEmpty());
}

// One alert from the process that it is about to the page that says it.
TEST_F(MonitoringTest, AnEngineThatDiesAgainAndAgainIsAnAlert) {
  const auto engine = [] {
    const auto pids = platform_->processes("dex-engine");
    return pids.empty() ? pid_t{0} : pids.back();
  };
  // An increase is seen of what was nought before.
  ASSERT_TRUE(eventually(
      [] {
        const auto data = prometheus_data(prometheus(), "query?query=dex_engine_restarts_total");
        return data.is_object() && !data.at("result").empty();
      },
      kSeen_ms));
  for (int i = 0; i < 4; ++i) {
    pid_t before = 0;
    ASSERT_TRUE(eventually([&] { return (before = engine()) != 0; }));
    kill(before, SIGKILL);
    ASSERT_TRUE(eventually([&] { return engine() != 0 && engine() != before; }));
  }
  EXPECT_TRUE(eventually([] { return firing().contains("DexEngineRestarting"); }, kSeen_ms));
}

}  // namespace
}  // namespace dex
