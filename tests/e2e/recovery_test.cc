#include <gmock/gmock.h>
#include <signal.h>

#include <sstream>

#include "services/base/sha256.h"
#include "tests/e2e/small_job.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::Outcome;
using support::RunningPlatform;
using support::small_job;
using support::with;

// Many enough that a job is still running when its processes are killed.
constexpr int kSteps = 80;

class RecoveryTest : public testing::Test {
 protected:
  // A tiny model: what is tested here is coming back, not training. And a tenth of the usual lease:
  // what a test waits for is that it ends (jobs.md, P3).
  RecoveryTest()
      : platform_(directory_ / "data", support::write_tiny_model(directory_ / "models"),
                  {{"DEX_LEASE_MS", "3000"}, {"DEX_SETTLE_MS", "3000"}, {"DEX_SWEEP_MS", "500"}}) {
    platform_.start();
    training_ = platform_.upload_rows("code", "train", 20);
    validation_ = platform_.upload_rows("code", "validation", 10);
  }

  // The published weights of a job, as a hash of the downloaded file.
  std::string weights_of(const nlohmann::json& job) {
    const std::string id = job.at("fine_tuned_model");
    const auto folder = directory_ / ("adapter-" + std::to_string(++downloads_));
    const Outcome outcome = platform_.ctl({"adapters", "download", id, folder});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return base::sha256_file(folder / "adapter_model.safetensors").value();
  }

  std::vector<std::string> job(int steps) const {
    return small_job(training_, validation_, steps, support::kTinyModel);
  }
  std::string start_job(int steps) { return platform_.ctl(job(steps)).json().at("id"); }
  nlohmann::json get(const std::string& id) { return platform_.ctl({"jobs", "get", id}).json(); }
  bool reaches(const std::string& id, int step) {
    return support::eventually(
        [&] {
          const auto job = get(id);
          return job.contains("progress") && job["progress"].at("step") >= step;
        },
        240'000);
  }
  // The step from which the job's last attempt went on, as its events tell.
  int resumed_from(const std::string& id) {
    std::istringstream events(platform_.ctl({"jobs", "events", id}).out);
    int step = -1;
    for (std::string line; std::getline(events, line);) {
      const auto event = nlohmann::json::parse(line);
      if (event.at("type") == "training_start") step = event["training_start"]["resumed_from_step"];
    }
    return step;
  }
  nlohmann::json ended(const std::string& id) {
    return platform_.ctl({"jobs", "watch", id}).json();
  }

  support::TemporaryDirectory directory_;
  RunningPlatform platform_;
  std::string training_, validation_;
  int downloads_ = 0;
};

// Issue: kill -9 of the trainer in the middle; attempt 2 ends with the same weights as an
// undisturbed run.
TEST_F(RecoveryTest, AKilledTrainerGoesOnFromItsCheckpointToTheSameWeights) {
  const auto straight = platform_.ctl(with(job(kSteps), {"--follow"})).json();
  ASSERT_EQ(straight.at("state"), "JOB_STATE_SUCCEEDED");

  const std::string id = start_job(kSteps);
  ASSERT_TRUE(reaches(id, 4));
  const auto trainers = platform_.processes("dex-trainer");
  ASSERT_EQ(trainers.size(), 1u);
  ASSERT_EQ(kill(trainers[0], SIGKILL), 0);

  const auto job = ended(id);
  EXPECT_EQ(job.at("state"), "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(job.at("attempt"), 2);
  EXPECT_EQ(job.at("progress").at("step"), kSteps);
  EXPECT_GE(resumed_from(id), 2) << "a run from step 0 would end with the same weights too";
  EXPECT_EQ(weights_of(job), weights_of(straight));
}

// One of two trainers that share each update: the other does not go on alone.
TEST_F(RecoveryTest, AKilledRankEndsBothAndTheJobGoesOnToTheSameWeights) {
  ASSERT_EQ(platform_.stop(), 0);
  platform_.start({"--ranks", "2"});
  const auto shared = with(job(kSteps), {"--set", "hyperparameters.micro_batch_size=1"});
  const auto straight = platform_.ctl(with(shared, {"--follow"})).json();
  ASSERT_EQ(straight.at("state"), "JOB_STATE_SUCCEEDED");

  const std::string id = platform_.ctl(shared).json().at("id");
  ASSERT_TRUE(reaches(id, 4));
  const auto trainers = platform_.processes("dex-trainer");
  ASSERT_EQ(trainers.size(), 2u);
  ASSERT_EQ(kill(trainers[1], SIGKILL), 0);
  EXPECT_TRUE(support::eventually([&] { return kill(trainers[0], 0) != 0; }, 30'000));

  const auto job = ended(id);
  EXPECT_EQ(job.at("state"), "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(job.at("attempt"), 2);
  EXPECT_GE(resumed_from(id), 2);
  EXPECT_EQ(weights_of(job), weights_of(straight));
}

TEST_F(RecoveryTest, AKilledRedisComesBackAndTheJobNeverNotices) {
  const std::string id = start_job(kSteps);
  ASSERT_TRUE(reaches(id, 2));
  const auto redis = platform_.processes("redis-server");
  ASSERT_EQ(redis.size(), 1u);
  ASSERT_EQ(kill(redis[0], SIGKILL), 0);
  ASSERT_TRUE(support::eventually(
      [&] {
        return platform_.ctl({"jobs", "get", id}).code == 0;
      },
      90'000));
  const auto job = ended(id);
  EXPECT_EQ(job.at("state"), "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(job.at("attempt"), 1);
}

TEST_F(RecoveryTest, AStoppedPlatformGoesOnWithTheJobAtTheNextStart) {
  const std::string id = start_job(kSteps);
  ASSERT_TRUE(reaches(id, 3));
  ASSERT_EQ(platform_.stop(), 0);
  platform_.start();
  const auto job = ended(id);
  EXPECT_EQ(job.at("state"), "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(job.at("attempt"), 2) << "given back at the stop and taken up again";
  EXPECT_GE(resumed_from(id), 2);
}

// kill -9 of dexd takes all of its processes along; the next start finds the job and goes on.
TEST_F(RecoveryTest, AKilledPlatformGoesOnWithTheJobAtTheNextStart) {
  const std::string id = start_job(kSteps);
  ASSERT_TRUE(reaches(id, 3));
  const auto trainers = platform_.processes("dex-trainer");
  ASSERT_EQ(trainers.size(), 1u);
  ASSERT_EQ(kill(platform_.pid(), SIGKILL), 0);
  EXPECT_TRUE(support::eventually([&] { return kill(trainers[0], 0) != 0; }, 30'000));
  platform_.start();
  const auto job = ended(id);
  EXPECT_EQ(job.at("state"), "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(job.at("attempt"), 2);
  EXPECT_GE(resumed_from(id), 2);
}

TEST_F(RecoveryTest, ACancelledJobStopsAndItsTrainerIsGone) {
  const std::string id = start_job(100000);
  ASSERT_TRUE(reaches(id, 1));
  EXPECT_EQ(platform_.ctl({"jobs", "cancel", id, "--wait"}).code, 0);
  EXPECT_EQ(get(id).at("state"), "JOB_STATE_CANCELLED");
  EXPECT_TRUE(
      support::eventually([&] { return platform_.processes("dex-trainer").empty(); }, 30'000));
  EXPECT_EQ(platform_.ctl({"jobs", "cancel", id}).code, 0) << "cancel may be repeated";
}

// A dead engine is restarted; until then generations say that nobody serves the model.
TEST_F(RecoveryTest, AKilledEngineComesBack) {
  const auto engines = platform_.processes("dex-engine");
  ASSERT_EQ(engines.size(), 1u);
  ASSERT_EQ(kill(engines[0], SIGKILL), 0);
  EXPECT_TRUE(support::eventually(
      [&] {
        return platform_
                   .ctl({"generate", support::kTinyModel, "--prompt", "a", "--max-tokens", "2"})
                   .code == 0;
      },
      60'000));
}

}  // namespace
}  // namespace dex
