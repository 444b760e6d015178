#include <gmock/gmock.h>

#include "tests/e2e/small_job.h"
#include "tests/support/paths.h"

namespace dex {
namespace {

using support::Outcome;
using support::RunningPlatform;
using support::small_job;
using support::with;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kModel = "smollm2-135m-instruct";

class WholePathTest : public testing::Test {
 protected:
  WholePathTest() : platform_(directory_ / "data") { platform_.start(); }

  nlohmann::json finished_job() {
    const std::string training = platform_.upload_rows("code", "train", 20);
    const std::string validation = platform_.upload_rows("code", "validation", 10);
    const Outcome outcome = platform_.ctl(with(small_job(training, validation), {"--follow"}));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json();
  }

  std::string greedy(const std::string& model) {
    const Outcome outcome =
        platform_.ctl({"generate", model, "--prompt", "def add(a, b):\n", "--max-tokens", "12",
                       "--temperature", "0", "--no-stream"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json().at("text");
  }

  support::TemporaryDirectory directory_;
  RunningPlatform platform_;
};

TEST_F(WholePathTest, AJobBecomesAnAdapterThatAnswersAndSurvivesARestart) {
  const auto job = finished_job();
  EXPECT_EQ(job.at("state"), "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(job.at("attempt"), 1);
  EXPECT_EQ(job.at("progress").at("step"), 6);
  const std::string adapter = job.at("fine_tuned_model");
  EXPECT_THAT(adapter, StartsWith("ft:smollm2-135m-instruct:default:"));
  const double before = job.at("metrics").at("base_valid_loss");
  const double after = job.at("metrics").at("valid_loss");
  EXPECT_GT(before, 0.5);
  EXPECT_LT(before, 6.0);
  EXPECT_LT(after, before) << "six updates at these rates already lower the held-out loss";
  EXPECT_THAT(std::string(job.at("branch_effect").at("verdict")), StartsWith("VERDICT_"));

  const std::string of_base = greedy(kModel);
  const std::string of_adapter = greedy(adapter);
  EXPECT_FALSE(of_base.empty());
  EXPECT_FALSE(of_adapter.empty());
  const Outcome reply =
      platform_.ctl({"generate", adapter, "--prompt", "x", "--max-tokens", "1", "--no-stream"});
  EXPECT_EQ(reply.json().at("model"), adapter);
  EXPECT_EQ(reply.json().at("adapter").at("id"), adapter);

  // The downloaded adapter gives other log-probabilities than the base, by the engine alone.
  const auto folder = directory_ / "adapter";
  EXPECT_EQ(platform_.ctl({"adapters", "download", adapter, folder}).code, 0);
  const std::string model = (support::deps_dir() / "models/").string() + kModel;
  const std::vector<std::string> score = {"score",    "--model",        model, "--dtype", "f32",
                                          "--tokens", "1,2,3,28,30,198"};
  const auto base_scores = support::run_program("dex-engine", score).json();
  const auto adapter_scores =
      support::run_program("dex-engine", with(score, {"--adapter", folder})).json();
  ASSERT_EQ(base_scores.size(), 5u);
  EXPECT_NE(base_scores, adapter_scores);

  // Everything is found again after a stop, and nothing was left running.
  EXPECT_EQ(platform_.stop(), 0) << platform_.log();
  platform_.start();
  const auto again = platform_.ctl({"jobs", "get", job.at("id")}).json();
  EXPECT_EQ(again.at("state"), "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(again.at("fine_tuned_model"), adapter);
  EXPECT_EQ(platform_.ctl({"files", "get", job.at("training_file")}).json().at("state"),
            "FILE_STATE_READY");
  EXPECT_EQ(greedy(adapter), of_adapter);
  EXPECT_EQ(greedy(kModel), of_base);
}

TEST_F(WholePathTest, OneFolderHasOnePlatform) {
  const Outcome second = support::run_program(
      "dexd", {"--data-dir", platform_.data_dir(), "--grpc-port", "0", "--http-port", "0"});
  EXPECT_NE(second.code, 0);
  EXPECT_THAT(second.err + second.out, HasSubstr(platform_.data_dir().string()));
  EXPECT_EQ(platform_.ctl({"models", "list"}).code, 0);  // the first one goes on
}

TEST_F(WholePathTest, StopLeavesNothingRunning) {
  std::vector<pid_t> pids;
  for (const char* name :
       {"redis-server", "dex-scheduler", "dex-gateway", "dex-worker", "dex-engine"}) {
    const auto found = platform_.processes(name);
    EXPECT_FALSE(found.empty()) << name;
    pids.insert(pids.end(), found.begin(), found.end());
  }
  EXPECT_EQ(platform_.stop(), 0);
  for (const pid_t pid : pids) EXPECT_NE(kill(pid, 0), 0) << pid;
}

TEST_F(WholePathTest, EstimatePresetsAndModelsAnswer) {
  const std::string file = platform_.upload_rows("code", "train", 20);
  const auto estimate = platform_.ctl({"jobs", "estimate", "--model", kModel, "--training-file",
                                       file, "--preset", "code", "--max-steps", "40"});
  ASSERT_EQ(estimate.code, 0) << estimate.err;
  EXPECT_EQ(estimate.json().at("total_steps"), "40");
  EXPECT_GT(estimate.json().at("expected_duration_seconds"), 1.0);
  // A worker does one update: more than the weights of the base in fp32, and not far from the
  // formula.
  const std::vector<std::string> probed = {
      "jobs",         "estimate", "--model",     kModel,  "--training-file",
      file,           "--method", "kvo_only",    "--set", "hyperparameters.micro_batch_size=2",
      "--batch-size", "2",        "--max-steps", "40",    "--max-seq-length",
      "128"};
  const auto formula = platform_.ctl(probed), probe = platform_.ctl(with(probed, {"--probe"}));
  ASSERT_EQ(probe.code, 0) << probe.err;
  EXPECT_EQ(formula.json().at("method"), "METHOD_FORMULA");
  EXPECT_EQ(probe.json().at("method"), "METHOD_PROBE");
  const auto bytes = [](const Outcome& outcome) {
    return std::stod(outcome.json().at("peak_host_memory_bytes").get<std::string>());
  };
  EXPECT_GT(bytes(probe), 4.0 * 134515008);
  EXPECT_LT(bytes(probe), 2 * bytes(formula));
  EXPECT_GT(probe.json().at("probe").at("step_seconds"), 0.0);
  EXPECT_EQ(probe.json().at("total_steps"), "40");
  EXPECT_EQ(platform_.ctl({"jobs", "list"}).out.find("probe-"), std::string::npos);
  const auto models = platform_.ctl({"models", "list"}).json();
  EXPECT_EQ(models.at("models").at(0).at("parameters"), "134515008");
  EXPECT_EQ(platform_.ctl({"presets", "list"}).json().at("presets").size(), 7u);
  EXPECT_EQ(platform_.ctl({"chat", kModel, "--message", "Say hello.", "--max-tokens", "8"}).code,
            0);
}

}  // namespace
}  // namespace dex
