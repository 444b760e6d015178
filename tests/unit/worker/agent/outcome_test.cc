#include "worker/agent/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace dex::agent {
namespace {

AttemptEnd exited(int code, Order order = Order::kNone) {
  AttemptEnd end;
  end.exit.code = code;
  end.order = order;
  return end;
}

AttemptEnd killed(int signal, Order order = Order::kNone) {
  AttemptEnd end;
  end.exit.signal = signal;
  end.order = order;
  return end;
}

AttemptEnd framed(iv1::Outcome outcome, Order order = Order::kNone) {
  AttemptEnd end;
  end.order = order;
  end.result.emplace();
  end.result->set_outcome(outcome);
  if (outcome == iv1::OUTCOME_SUCCESS) end.result->mutable_result()->set_uri("x");
  return end;
}

struct Case {
  const char* name;
  AttemptEnd end;
  iv1::Outcome outcome;
  const char* code;
};

class JudgeTest : public testing::TestWithParam<Case> {};

// jobs.md §6, row by row.
TEST_P(JudgeTest, FollowsTheTable) {
  const auto verdict = judge(GetParam().end);
  EXPECT_TRUE(verdict.report);
  EXPECT_EQ(iv1::Outcome_Name(verdict.outcome), iv1::Outcome_Name(GetParam().outcome));
  EXPECT_EQ(verdict.code, GetParam().code);
}

INSTANTIATE_TEST_SUITE_P(
    Table, JudgeTest,
    testing::Values(
        Case{"bad_config", exited(10), iv1::OUTCOME_FAIL_FINAL, "invalid_hyperparameter"},
        Case{"bad_data", exited(11), iv1::OUTCOME_FAIL_FINAL, "invalid_training_file"},
        Case{"non_finite", exited(12), iv1::OUTCOME_FAIL_FINAL, "non_finite_loss"},
        Case{"oom", exited(13), iv1::OUTCOME_OOM, "out_of_memory"},
        Case{"disk_full", exited(14), iv1::OUTCOME_DISK_FULL, "disk_full"},
        Case{"quota", exited(15), iv1::OUTCOME_FAIL_FINAL, "quota_exceeded"},
        Case{"bad_base", exited(17), iv1::OUTCOME_RELEASE, "internal"},
        Case{"retryable", exited(18), iv1::OUTCOME_FAIL_RETRY, "internal"},
        Case{"guard", exited(19), iv1::OUTCOME_FAIL_FINAL, "gate_failed"},
        Case{"broken_checkpoint", exited(20), iv1::OUTCOME_FAIL_RETRY, "internal"},
        Case{"unknown_code", exited(77), iv1::OUTCOME_CRASH, "internal"},
        Case{"success_without_result", exited(0), iv1::OUTCOME_CRASH, "internal"},
        Case{"segfault", killed(SIGSEGV), iv1::OUTCOME_CRASH, "internal"},
        Case{"oom_kill", killed(SIGKILL), iv1::OUTCOME_CRASH, "internal"},
        Case{"evicted", exited(16), iv1::OUTCOME_RELEASE, ""},
        Case{"drained", exited(16, Order::kDrain), iv1::OUTCOME_RELEASE, ""},
        Case{"paused", exited(16, Order::kPause), iv1::OUTCOME_PAUSED, ""},
        Case{"cancelled", exited(16, Order::kCancel), iv1::OUTCOME_CANCELLED, ""},
        Case{"killed_on_cancel", killed(SIGKILL, Order::kCancel), iv1::OUTCOME_CANCELLED, ""},
        Case{"killed_on_pause", killed(SIGKILL, Order::kPause), iv1::OUTCOME_PAUSED, ""},
        Case{"killed_on_drain", killed(SIGKILL, Order::kDrain), iv1::OUTCOME_RELEASE, ""},
        Case{"frame_success", framed(iv1::OUTCOME_SUCCESS), iv1::OUTCOME_SUCCESS, ""},
        Case{"frame_success_beats_cancel", framed(iv1::OUTCOME_SUCCESS, Order::kCancel),
             iv1::OUTCOME_SUCCESS, ""},
        Case{"frame_oom", framed(iv1::OUTCOME_OOM), iv1::OUTCOME_OOM, ""},
        Case{"frame_cancelled_that_nobody_ordered", framed(iv1::OUTCOME_CANCELLED),
             iv1::OUTCOME_RELEASE, ""}),
    [](const auto& info) { return info.param.name; });

TEST(JudgeTest, ALostLeaseHasNothingToReport) {
  EXPECT_FALSE(judge(framed(iv1::OUTCOME_SUCCESS, Order::kLost)).report);
  EXPECT_FALSE(judge(killed(SIGKILL, Order::kLost)).report);
}

TEST(JudgeTest, AStallIsTheJobsFailureNotACrash) {
  auto end = killed(SIGKILL);
  end.stalled = true;
  EXPECT_EQ(judge(end).outcome, iv1::OUTCOME_FAIL_RETRY);
  EXPECT_EQ(judge(end).code, "stalled");
}

RankEnd rank_end(int code, int signal, const char* said = nullptr) {
  RankEnd end;
  end.rank = 1;
  end.exit = {code, signal};
  if (said != nullptr) {
    end.result.emplace();
    end.result->set_outcome(iv1::OUTCOME_FAIL_RETRY);
    end.result->set_code(said);
  }
  return end;
}

TEST(JudgeTest, OfSeveralRanksTheOneCountsThatDidNotEndForAnother) {
  auto lost = framed(iv1::OUTCOME_FAIL_RETRY);
  lost.result->set_code(kRankLost);
  lost.exit.code = 18;
  auto killed_other = lost;
  killed_other.lost_rank = rank_end(0, SIGKILL);
  EXPECT_EQ(judge(killed_other).outcome, iv1::OUTCOME_CRASH);
  EXPECT_NE(judge(killed_other).message.find("rank 1: "), std::string::npos);

  // Rank 0 failed, and the other lost it.
  auto failed = framed(iv1::OUTCOME_FAIL_FINAL);
  failed.result->set_code("non_finite_loss");
  failed.lost_rank = rank_end(18, 0, kRankLost);
  EXPECT_EQ(judge(failed).outcome, iv1::OUTCOME_FAIL_FINAL);
  EXPECT_EQ(judge(failed).code, "non_finite_loss");
  auto crashed = killed(SIGSEGV);
  crashed.lost_rank = rank_end(18, 0, kRankLost);
  EXPECT_EQ(judge(crashed).outcome, iv1::OUTCOME_CRASH);

  // Both lost each other: a network's fault, and no code of api.md.
  lost.lost_rank = rank_end(18, 0, kRankLost);
  EXPECT_EQ(judge(lost).outcome, iv1::OUTCOME_FAIL_RETRY);
  EXPECT_EQ(judge(lost).code, "internal");
}

TEST(JudgeTest, WhatWasOrderedIsNoRanksEnd) {
  auto end = killed(SIGKILL, Order::kCancel);
  end.lost_rank = rank_end(0, SIGKILL);
  EXPECT_EQ(judge(end).outcome, iv1::OUTCOME_CANCELLED);
  auto success = framed(iv1::OUTCOME_SUCCESS);
  success.lost_rank = rank_end(0, SIGKILL);
  EXPECT_EQ(judge(success).outcome, iv1::OUTCOME_SUCCESS);
}

// Whoever reads it looks for a process of a machine (api.md, C27).
TEST(JudgeTest, AStallAndADeathNameTheProcess) {
  auto end = killed(SIGKILL);
  end.process = {"dex-trainer", 4711, "gpu-3"};
  EXPECT_THAT(
      judge(end).message,
      testing::StartsWith("dex-trainer (process 4711 on worker gpu-3) ended with signal 9"));
  end.stalled = true;
  end.silent_ms = 600'250;
  end.last_heard = "step 12 in phase TRAINING";
  end.activity = "sleeping";
  EXPECT_EQ(judge(end).message,
            "dex-trainer (process 4711 on worker gpu-3) did nothing new for 600 s after step 12 in "
            "phase TRAINING; it was sleeping and was killed");
}

TEST(JudgeTest, ABrokenChannelIsACrashThatNamesItsReason) {
  auto end = killed(SIGKILL);
  end.broken_channel = "frame of 4294967295 bytes";
  EXPECT_EQ(judge(end).outcome, iv1::OUTCOME_CRASH);
  EXPECT_NE(judge(end).message.find("4294967295"), std::string::npos);
}

TEST(JudgeTest, SuccessWithoutAResultIsNone) {
  auto end = framed(iv1::OUTCOME_SUCCESS);
  end.result->clear_result();
  EXPECT_EQ(judge(end).outcome, iv1::OUTCOME_CRASH);
}

TEST(JudgeTest, ABrokenBaseTakesTheWorkerOutOfService) {
  EXPECT_TRUE(judge(exited(17)).out_of_service);
  EXPECT_FALSE(judge(exited(18)).out_of_service);
}

TEST(JudgeTest, ABrokenCheckpointIsNoWorkersFault) {
  EXPECT_FALSE(judge(exited(20)).out_of_service);
  EXPECT_TRUE(found_checkpoint_broken(exited(20)));
  EXPECT_FALSE(found_checkpoint_broken(exited(17)));
  EXPECT_FALSE(found_checkpoint_broken(exited(20, Order::kPause)));
  EXPECT_FALSE(found_checkpoint_broken(killed(SIGKILL)));
}

// Its trainer says "try again", but it was told to stop before another one could be tried.
TEST(JudgeTest, ABrokenCheckpointOfAStoppedTrainerCostsTheJobNothing) {
  const auto outcome = [](Order order) {
    auto end = framed(iv1::OUTCOME_FAIL_RETRY, order);
    end.exit.code = 20;
    return judge(end).outcome;
  };
  EXPECT_EQ(outcome(Order::kDrain), iv1::OUTCOME_RELEASE);
  EXPECT_EQ(outcome(Order::kPause), iv1::OUTCOME_PAUSED);
  EXPECT_EQ(outcome(Order::kCancel), iv1::OUTCOME_CANCELLED);
  EXPECT_EQ(outcome(Order::kNone), iv1::OUTCOME_FAIL_RETRY);
}

TEST(JudgeTest, OfItsOwnAccordATrainerPausesOnlyWhatIsHeld) {
  iv1::ClaimedJob job;
  EXPECT_EQ(judge_training(framed(iv1::OUTCOME_PAUSED), job).outcome, iv1::OUTCOME_RELEASE);
  EXPECT_EQ(judge_training(framed(iv1::OUTCOME_PAUSED, Order::kDrain), job).outcome,
            iv1::OUTCOME_RELEASE);
  EXPECT_EQ(judge_training(framed(iv1::OUTCOME_PAUSED, Order::kPause), job).outcome,
            iv1::OUTCOME_PAUSED);
  job.set_hold(true);
  EXPECT_EQ(judge_training(framed(iv1::OUTCOME_PAUSED), job).outcome, iv1::OUTCOME_PAUSED);
}

}  // namespace
}  // namespace dex::agent
