#include "worker/agent/stall_clock.h"

#include <gtest/gtest.h>

namespace dex::agent {
namespace {

using dex::v1::JobPhase;

constexpr StallClock::Options kTrainerClock{StallClock::Signs::kSteps, 100, 1000};

iv1::TrainerReport progress(uint32_t step, JobPhase phase, double step_seconds = 0.5) {
  iv1::TrainerReport report;
  report.mutable_progress()->set_phase(phase);
  report.mutable_progress()->set_step_seconds(step_seconds);
  report.mutable_progress()->mutable_progress()->set_step(step);
  return report;
}

iv1::TrainerReport event_of(const std::string& type) {
  iv1::TrainerReport report;
  report.mutable_event()->set_type(type);
  return report;
}

TEST(StallClockTest, UntilTheFirstStepItWaitsLonger) {
  StallClock clock(kTrainerClock, 0);
  clock.heard(progress(0, dex::v1::JOB_PHASE_LOADING_MODEL, 0), 10);
  EXPECT_FALSE(clock.stalled(1010));
  EXPECT_TRUE(clock.stalled(1011));
  clock.heard(progress(1, dex::v1::JOB_PHASE_TRAINING), 500);
  EXPECT_FALSE(clock.stalled(600));
  EXPECT_TRUE(clock.stalled(601));
  EXPECT_EQ(clock.silent_ms(601), 101);
}

TEST(StallClockTest, WhatRepeatsItselfIsNoSign) {
  StallClock clock(kTrainerClock, 0);
  clock.heard(progress(7, dex::v1::JOB_PHASE_TRAINING), 0);
  clock.heard(event_of("metrics"), 10);
  for (int64_t now = 20; now < 200; now += 10) {
    clock.heard(progress(7, dex::v1::JOB_PHASE_TRAINING), now);
    clock.heard(event_of("metrics"), now);
  }
  EXPECT_EQ(clock.silent_ms(200), 190) << "the first event was the last sign";
  EXPECT_TRUE(clock.stalled(200));
}

TEST(StallClockTest, PhasesAndACheckpointOfAStepAreSignsOnce) {
  StallClock clock(kTrainerClock, 0);
  clock.heard(progress(7, dex::v1::JOB_PHASE_TRAINING), 0);
  clock.heard(progress(7, dex::v1::JOB_PHASE_EVALUATING), 90);
  clock.heard(progress(7, dex::v1::JOB_PHASE_SAVING_CHECKPOINT), 180);
  iv1::TrainerReport saved;
  saved.mutable_checkpoint()->set_step(7);
  clock.heard(saved, 270);
  EXPECT_FALSE(clock.stalled(370));
  clock.heard(progress(7, dex::v1::JOB_PHASE_EVALUATING), 360);
  clock.heard(saved, 360);
  EXPECT_TRUE(clock.stalled(371));
  clock.heard(progress(8, dex::v1::JOB_PHASE_TRAINING), 380);
  clock.heard(progress(8, dex::v1::JOB_PHASE_EVALUATING), 470);
  EXPECT_FALSE(clock.stalled(570));
}

TEST(StallClockTest, EachGateIsASignOfItsOwn) {
  StallClock clock(kTrainerClock, 0);
  clock.heard(progress(40, dex::v1::JOB_PHASE_EXPORTING), 0);
  int64_t now = 0;
  for (const char* gate : {"held_out.loss", "base_guard.kl", "base_guard.kl"}) {
    auto judged = event_of("gate_result");
    judged.mutable_event()->mutable_gate_result()->set_gate(gate);
    clock.heard(judged, now += 90);
  }
  EXPECT_EQ(clock.silent_ms(270), 90) << "the third is the second again";
}

TEST(StallClockTest, GoingBackToAnEarlierStepIsASign) {
  StallClock clock(kTrainerClock, 0);
  clock.heard(progress(7, dex::v1::JOB_PHASE_TRAINING), 0);
  clock.heard(progress(5, dex::v1::JOB_PHASE_TRAINING), 90);
  EXPECT_FALSE(clock.stalled(190));
}

TEST(StallClockTest, AnyFrameOfAnEvaluatorIsASign) {
  StallClock clock({StallClock::Signs::kFrames, 100, 100}, 0);
  for (int64_t now = 50; now <= 500; now += 50)
    clock.heard(progress(0, dex::v1::JOB_PHASE_EVALUATING, 0), now);
  EXPECT_FALSE(clock.stalled(600));
  EXPECT_TRUE(clock.stalled(601));
}

TEST(StallClockTest, WithoutALimitNothingIsAStall) {
  const StallClock clock({StallClock::Signs::kSteps, 0, 1000}, 0);
  EXPECT_FALSE(clock.stalled(1'000'000'000));
}

}  // namespace
}  // namespace dex::agent
