// A job of several ranks: trainers of one attempt, which end together (jobs.md §6).
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "tests/unit/worker/agent/slot_fixture.h"

namespace dex::agent {
namespace {

using testing::HasSubstr;

class SlotRanksTest : public SlotTest {
 protected:
  SlotRanksTest() {
    attempt_.ranks = 3;
    attempt_.threads = 7;
  }
};

// Each checks what it was told (fake_trainer.cc); rank 0 waits for the others' files.
TEST_F(SlotRanksTest, EachRankGetsTheJobItsNumberAndItsShareOfTheThreads) {
  start();
  offer("ranks");
  const auto finish = finished();
  EXPECT_EQ(iv1::Outcome_Name(finish.outcome()), iv1::Outcome_Name(iv1::OUTCOME_SUCCESS))
      << finish.message();
  EXPECT_EQ(finish.result().uri(), std::string(kAttemptDir) + "/final");
  for (const char* log : {"trainer.log", "trainer.rank1.log", "trainer.rank2.log"})
    EXPECT_TRUE(std::filesystem::exists(directory_ / kAttemptDir / log)) << log;
  stop();
  expect_slot_free();
}

struct Dead {
  const char* behaviour;
  iv1::Outcome outcome;
  const char* code;
  const char* says;
};
class DeadRankTest : public SlotRanksTest, public testing::WithParamInterface<Dead> {};

// Whatever the others still do, and say of it.
TEST_P(DeadRankTest, EndsAllAndTheAttemptEndsAsItDid) {
  start();
  offer(GetParam().behaviour);
  const auto finish = finished();
  EXPECT_EQ(iv1::Outcome_Name(finish.outcome()), iv1::Outcome_Name(GetParam().outcome));
  EXPECT_EQ(finish.code(), GetParam().code);
  EXPECT_THAT(finish.message(), HasSubstr(GetParam().says));
  stop();
  expect_slot_free();
}

INSTANTIATE_TEST_SUITE_P(Ends, DeadRankTest,
                         testing::Values(Dead{"rank-dies", iv1::OUTCOME_CRASH, "internal",
                                              "rank 2: trainer ended with signal 6"},
                                         Dead{"rank-dies-noticed", iv1::OUTCOME_CRASH, "internal",
                                              "rank 2: trainer ended with signal 6"},
                                         Dead{"rank-refuses", iv1::OUTCOME_FAIL_FINAL,
                                              "invalid_training_file", "rank 2: bad rows"},
                                         Dead{"rank-0-dies", iv1::OUTCOME_CRASH, "internal",
                                              "ended with signal 6"}),
                         [](const auto& info) {
                           std::string name = info.param.behaviour;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_F(SlotRanksTest, AStopIsRank0sAndTheOthersGoWithIt) {
  start();
  offer("wait");
  ASSERT_TRUE(wait_for_step(2));
  stop();
  EXPECT_EQ(iv1::Outcome_Name(finished().outcome()), iv1::Outcome_Name(iv1::OUTCOME_RELEASE));
  expect_slot_free();
}

// One update on the longest rows is the same on every machine, and nothing is shared.
TEST_F(SlotRanksTest, WhatOnlyChecksAJobIsOneTrainer) {
  start();
  auto job = job_of("held");
  job.set_hold(true);
  scheduler_.offer(job);
  EXPECT_EQ(iv1::Outcome_Name(finished().outcome()), iv1::Outcome_Name(iv1::OUTCOME_PAUSED));
}

}  // namespace
}  // namespace dex::agent
