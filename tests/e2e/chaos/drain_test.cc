// SIGTERM under load, to each process in turn: from its first moment it says that it serves no
// more, every stream ends with the reason, the training job is given back with a checkpoint and
// pays nothing, and the process is gone in time (jobs.md §9, drain; P12).
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "services/base/clock.h"
#include "tests/e2e/chaos/calls.h"
#include "tests/e2e/chaos/load.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"
#include "tests/support/health_watch.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using support::eventually;
using support::HealthWatch;
using support::kDraining;
using support::Load;
using support::Program;
using support::slack;
using testing::Each;
using testing::IsEmpty;
using Kind = Load::Kind;

class DrainTest : public testing::Test {
 protected:
  // A lease that outlasts a scheduler's restart, as the usual 30 s do.
  DrainTest()
      : platform_(
            {.times = {10'000, 6'000, 2'000, 0, 0, 9'000}, .engine = support::fake_engine()}) {
    job_ = platform_.submit("ms-20", 100'000, /*checkpoint_every=*/25);
  }
  ~DrainTest() override {
    for (const auto& [what, seconds] : slowest_) {
      support::figure("drain", what + "_max_s", seconds);
    }
  }

  static int rounds() { return support::long_form() ? 20 : 1; }
  // Routes and watches are back after a restart. A gateway tries a scheduler that it found gone
  // again within two seconds (services/rpc/channel.cc); until then its calls are UNAVAILABLE.
  void ready() {
    ASSERT_TRUE(platform_.ready());
    ASSERT_TRUE(platform_.becomes(job_, "RUNNING"));
    const auto jobs = v1::FineTuningService::NewStub(rpc::channel(platform_.grpc()));
    ASSERT_TRUE(eventually([&] {
      v1::GetFineTuningJobRequest known;
      known.set_id(job_);
      return support::ask(*jobs, &v1::FineTuningService::Stub::GetFineTuningJob, known).ok();
    }));
    const auto inference = v1::InferenceService::NewStub(rpc::channel(platform_.grpc()));
    ASSERT_TRUE(eventually([&] {
      auto hello = support::generation(support::kTinyModel, 1);
      hello.set_prompt("hello");
      return support::ask(*inference, &v1::InferenceService::Stub::Generate, hello).ok();
    }));
  }
  // SIGTERM at a moment like any other; how it ended. `meanwhile`: once it has said that it serves
  // no more, before it may end.
  int drain(Program& program, const std::function<void()>& meanwhile = nullptr) {
    support::pass_time(std::uniform_int_distribution<int>(0, 300)(random_));
    HealthWatch health(program.grpc());
    EXPECT_TRUE(health.says(HealthWatch::Health::kServing));
    const int64_t asked_ms = clock_.steady_ms();
    program.signal(SIGTERM);
    EXPECT_TRUE(health.says(HealthWatch::Health::kNotServing)) << "to whom watches its health";
    note("not_serving", asked_ms);
    EXPECT_TRUE(eventually([&] { return !program.ready(); }, support::kPatience_ms));
    EXPECT_TRUE(program.running()) << "it is gone, and was not asked whether it is ready";
    if (meanwhile) meanwhile();
    health.end();
    const int code = program.wait(slack() * kPromise_ms);
    note(program.name(), asked_ms);
    return code;
  }
  void note(const std::string& what, int64_t since_ms) {
    slowest_[what] = std::max(slowest_[what], clock_.seconds_since(since_ms));
  }
  // SIGTERM to the trainer, which says itself that it was released.
  void evict_trainer(int next_attempt) {
    const uint32_t step = platform_.step(job_);
    const auto trainers = platform_.agent().children("dex-toy-trainer");
    ASSERT_EQ(trainers.size(), 1U);
    const int64_t asked_ms = clock_.steady_ms();
    ASSERT_EQ(::kill(trainers.front(), SIGTERM), 0);
    ASSERT_TRUE(eventually([&] { return platform_.number(job_, "attempt") == next_attempt; },
                           slack() * kPromise_ms));
    note("trainer", asked_ms);
    expect_given_back(next_attempt - 1, step);
  }
  // So often until now, the last time with this step done; none of it is the job's own failure.
  void expect_given_back(int times, uint32_t step) {
    auto job = platform_.record(job_);
    EXPECT_EQ(job["preempts"], std::to_string(times));
    EXPECT_EQ(job["failures"], "0");
    EXPECT_EQ(job["crashes"], "0");
    EXPECT_GE(std::stoul(job["ckpt_step"]), step);
  }
  void expect_time_to_say_so() { EXPECT_LT(slowest_["not_serving"], slack() * 1.0); }

  static constexpr int64_t kPromise_ms = 12'000;
  static constexpr uint32_t kTokens = 100;
  const base::SystemClock clock_{};
  std::mt19937 random_{7};
  std::map<std::string, double> slowest_;
  ChaosPlatform platform_;
  std::string job_;
};

TEST_F(DrainTest, ASchedulerEndsWatchesAndUploadsAndNothingElse) {
  for (int round = 0; round < rounds(); ++round) {
    ready();
    Load load(platform_.grpc(), job_, kTokens);
    ASSERT_TRUE(load.open());
    EXPECT_EQ(drain(platform_.scheduler()), 0);
    EXPECT_THAT(load.reasons(Kind::kWatch), Each(kDraining));
    EXPECT_THAT(load.reasons(Kind::kUpload), Each(kDraining));
    EXPECT_TRUE(load.is_open(Kind::kGeneration));
    platform_.scheduler().start();
  }
  ready();
  expect_time_to_say_so();
  EXPECT_EQ(platform_.number(job_, "attempt"), 1);
  EXPECT_THAT(platform_.wrong(), IsEmpty());
}

TEST_F(DrainTest, AGatewayIsNotReadyWhileItWaitsForGenerations) {
  for (int round = 0; round < rounds(); ++round) {
    ready();
    Load load(platform_.grpc(), job_, kTokens);
    ASSERT_TRUE(load.open());
    Program& gateway = platform_.gateway();
    bool generations_go_on = false;
    EXPECT_EQ(drain(gateway, [&] { generations_go_on = load.is_open(Kind::kGeneration); }), 0);
    EXPECT_TRUE(generations_go_on);
    EXPECT_THAT(load.reasons(Kind::kWatch), Each(kDraining));
    EXPECT_THAT(load.reasons(Kind::kUpload), Each(kDraining));
    EXPECT_THAT(load.reasons(Kind::kGeneration), Each(kDraining));
    gateway.start();
  }
  ready();
  expect_time_to_say_so();
  EXPECT_EQ(platform_.number(job_, "attempt"), 1);
  EXPECT_THAT(platform_.wrong(), IsEmpty());
}

TEST_F(DrainTest, AnAgentGivesItsJobBackWithACheckpointAndNothingIsCharged) {
  for (int round = 0; round < rounds(); ++round) {
    ready();
    ASSERT_TRUE(platform_.reaches(job_, platform_.step(job_) + 10));
    Load load(platform_.grpc(), job_, kTokens);
    ASSERT_TRUE(load.open());
    // First its trainer alone, by somebody else, as an eviction does it.
    evict_trainer(/*next_attempt=*/2 * round + 2);
    for (const Kind kind : {Kind::kWatch, Kind::kUpload, Kind::kGeneration}) {
      EXPECT_TRUE(load.is_open(kind)) << "somebody notices that a trainer stops";
    }
    ASSERT_TRUE(platform_.reaches(job_, platform_.step(job_) + 10));

    const uint32_t step = platform_.step(job_);
    EXPECT_EQ(drain(platform_.agent()), 0);
    EXPECT_THAT(load.reasons(Kind::kGeneration), Each(kDraining));
    EXPECT_TRUE(load.is_open(Kind::kWatch));
    expect_given_back(/*times=*/2 * round + 2, step);
    auto job = platform_.record(job_);
    EXPECT_EQ(job["state"], "READY");
    EXPECT_EQ(job["ckpt_step"], std::to_string(platform_.step(job_)))
        << "a step was done and not saved";
    platform_.agent().start();
  }
  support::figure("P12", "agents_drained", rounds());
  // The toy goes on only from a checkpoint that is byte for byte and step for step what it was.
  ready();
  expect_time_to_say_so();
  EXPECT_EQ(platform_.number(job_, "attempt"), 2 * rounds() + 1);
  EXPECT_THAT(platform_.wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
