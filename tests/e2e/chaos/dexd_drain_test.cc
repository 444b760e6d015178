// SIGTERM to dexd under load: it takes all of its processes down in their order, each with its own
// last words, and is gone in time (jobs.md §9, drain). The real trainer and engine.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "services/base/clock.h"
#include "tests/e2e/chaos/load.h"
#include "tests/e2e/small_job.h"
#include "tests/support/content_of.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"
#include "tests/support/health_watch.h"
#include "tests/support/running_platform.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::eventually;
using support::HealthWatch;
using support::kDraining;
using support::Load;
using support::slack;
using testing::AnyOf;
using testing::Each;
using testing::IsEmpty;

class DexdDrainTest : public testing::Test {
 protected:
  // Beats that tell the test soon how far the training is.
  DexdDrainTest()
      : platform_(directory_ / "data", support::write_tiny_model(directory_ / "models"),
                  {{"DEX_BEAT_MS", "500"}}) {
    platform_.start();
    const auto training = platform_.upload_rows("code", "train", 20);
    const auto validation = platform_.upload_rows("code", "validation", 10);
    job_ = platform_.ctl(support::small_job(training, validation, 100'000, support::kTinyModel))
               .json()
               .at("id")
               .get<std::string>();
  }

  // The job is at work in this attempt, and has done a few of its steps.
  bool trains(int attempt) {
    client::Client::Options options;
    options.server = platform_.server();
    client::Client client(options);
    uint32_t first = 0;
    return eventually(
        [&] {
          const auto job = client.get_job(job_);
          if (!job.ok() || job->attempt() != static_cast<uint32_t>(attempt)) return false;
          if (first == 0) first = job->progress().step();
          return first > 0 && job->progress().step() >= first + 2;
        },
        120'000);
  }
  // How often the agent has written a line with these words.
  int said_by_agent(const std::string& words) {
    const std::string log = support::content_of(platform_.data_dir() / "logs" / "worker.log");
    int times = 0;
    for (size_t at = log.find(words); at != std::string::npos; at = log.find(words, at + 1))
      ++times;
    return times;
  }
  // Programs of this platform that still run.
  std::vector<pid_t> left(const std::vector<pid_t>& all) {
    std::vector<pid_t> living;
    for (const pid_t pid : all) {
      if (::kill(pid, 0) == 0) living.push_back(pid);
    }
    return living;
  }
  std::vector<pid_t> all_of_it() {
    std::vector<pid_t> all;
    for (const char* name : {"redis-server", "dex-scheduler", "dex-gateway", "dex-worker",
                             "dex-trainer", "dex-engine"}) {
      const auto some = platform_.processes(name);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  const base::SystemClock clock_{};
  support::TemporaryDirectory directory_;
  support::RunningPlatform platform_;
  std::string job_;
};

TEST_F(DexdDrainTest, ItEndsUnderLoadInTimeAndTheJobIsGivenBack) {
  constexpr int64_t kPromise_ms = 12'000;
  // Generations are still at it when the signal comes, and may then come to their end.
  constexpr uint32_t kTokens = 900;
  double slowest_s = 0;
  for (int round = 0; round < (support::long_form() ? 20 : 1); ++round) {
    if (round > 0) platform_.start();
    ASSERT_TRUE(trains(round + 1)) << platform_.log();
    const auto processes = all_of_it();
    EXPECT_EQ(processes.size(), 6U);
    Load load(platform_.server(), job_, kTokens);
    ASSERT_TRUE(load.open());
    HealthWatch health(platform_.server());
    ASSERT_TRUE(health.says(HealthWatch::Health::kServing));

    const int64_t asked_ms = clock_.steady_ms();
    platform_.ask_to_stop();
    EXPECT_TRUE(health.says(HealthWatch::Health::kNotServing, slack() * kPromise_ms))
        << "the gateway, once the worker is gone";
    health.end();
    EXPECT_EQ(platform_.wait(slack() * kPromise_ms), 0);
    slowest_s = std::max(slowest_s, clock_.seconds_since(asked_ms));
    EXPECT_THAT(load.reasons(Load::Kind::kWatch), Each(kDraining));
    EXPECT_THAT(load.reasons(Load::Kind::kUpload), Each(kDraining));
    EXPECT_THAT(load.reasons(Load::Kind::kGeneration), Each(AnyOf("OK", kDraining)));
    EXPECT_THAT(left(processes), IsEmpty());
    // A release: no failure, no crash. And the scheduler has heard it.
    EXPECT_EQ(said_by_agent("OUTCOME_RELEASE"), round + 1);
    EXPECT_EQ(said_by_agent("is now READY"), round + 1);
  }
  support::figure("drain", "dexd_max_s", slowest_s);
  EXPECT_LT(slowest_s, slack() * static_cast<double>(kPromise_ms) / 1000);
}

}  // namespace
}  // namespace dex
