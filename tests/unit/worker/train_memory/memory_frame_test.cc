// How a post-mortem and a probe's figures leave the trainer. No LibTorch here, since protobuf is.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/frame_channel.h"
#include "worker/train/frame_session.h"

namespace dex::train {
namespace {

using dex::internal::v1::TrainerReport;

constexpr int64_t kSoonMs = 20'000;

class MemoryFrameTest : public testing::Test {
 protected:
  MemoryFrameTest() {
    auto pair = base::FrameChannel::pair();
    agent_ = std::move(pair.value().first);
    trainer_ = std::make_unique<base::FrameChannel>(std::move(pair.value().second));
    session_ = std::make_unique<FrameSession>(*trainer_, signals_, clock_);
  }
  TrainerReport heard() {
    TrainerReport report;
    const auto frame = agent_->read(kSoonMs);
    EXPECT_TRUE(frame.ok());
    EXPECT_TRUE(frame.ok() && report.ParseFromString(*frame));
    return report;
  }

  base::StopSignals signals_;
  base::SystemClock clock_;
  std::unique_ptr<base::FrameChannel> agent_, trainer_;
  std::unique_ptr<FrameSession> session_;
};

TEST_F(MemoryFrameTest, APostMortemEndsTheAttempt) {
  OutOfMemory out;
  out.where = MemoryPlace::kBackward;
  out.longest_row_tokens = 512;
  out.peak_memory_bytes = int64_t{3} << 30;
  out.micro_batch_size = 8;
  out.max_seq_length = 1024;
  out.step = 17;
  out.retry_micro_batch_size = 4;
  const OutOfMemoryFailure failure(out);
  Ending ending;
  ending.exit = failure.exit();
  ending.code = failure.code();
  ending.message = failure.what();
  ending.out_of_memory = failure.post_mortem();
  session_->end(ending);
  const auto result = heard().result();
  EXPECT_EQ(result.outcome(), internal::v1::OUTCOME_OOM);
  EXPECT_EQ(result.code(), "out_of_memory");
  EXPECT_EQ(result.message(),
            "out of memory in the backward pass after 17 updates: peak 3072 MiB, longest row 512 "
            "tokens, micro_batch_size 8, max_seq_length 1024");
  const auto& found = result.out_of_memory();
  EXPECT_EQ(found.where(), v1::OutOfMemory::WHERE_BACKWARD);
  EXPECT_EQ(found.longest_row_tokens(), 512);
  EXPECT_EQ(found.peak_memory_bytes(), int64_t{3} << 30);
  EXPECT_EQ(found.micro_batch_size(), 8U);
  EXPECT_EQ(found.max_seq_length(), 1024U);
  EXPECT_EQ(found.step(), 17U);
  EXPECT_EQ(found.retry_with().at("hyperparameters.micro_batch_size"), 4U);
}

TEST_F(MemoryFrameTest, EveryPlaceHasItsWord) {
  for (const auto& [place, where] :
       {std::pair(MemoryPlace::kBefore, v1::OutOfMemory::WHERE_UNSPECIFIED),
        std::pair(MemoryPlace::kForward, v1::OutOfMemory::WHERE_FORWARD),
        std::pair(MemoryPlace::kOptimizer, v1::OutOfMemory::WHERE_OPTIMIZER),
        std::pair(MemoryPlace::kEvaluation, v1::OutOfMemory::WHERE_EVALUATION)}) {
    Ending ending;
    ending.exit = Exit::kOutOfMemory;
    ending.out_of_memory.emplace();
    ending.out_of_memory->where = place;
    session_->end(ending);
    EXPECT_EQ(heard().result().out_of_memory().where(), where) << name(place);
  }
}

// The data of the trainer's event is the message of events.proto.
TEST_F(MemoryFrameTest, TheEventsDataIsItsMessage) {
  session_->event({Event::Level::kWarn, "out_of_memory", "out of memory",
                   R"({"where": "WHERE_FORWARD", "longestRowTokens": "40", "peakMemoryBytes": "9",
                       "microBatchSize": 2, "maxSeqLength": 64, "step": 3,
                       "retryWith": {"hyperparameters.micro_batch_size": 1}})"});
  const auto event = heard().event();
  EXPECT_EQ(event.type(), "out_of_memory");
  EXPECT_EQ(event.out_of_memory().where(), v1::OutOfMemory::WHERE_FORWARD);
  EXPECT_EQ(event.out_of_memory().longest_row_tokens(), 40);
  EXPECT_EQ(event.out_of_memory().retry_with().at("hyperparameters.micro_batch_size"), 1U);
}

TEST_F(MemoryFrameTest, AProbesFiguresAreItsResult) {
  Ending ending;
  ending.published.emplace();
  ending.published->memory_probe = MemoryProbe{.peak_memory_bytes = 5,
                                               .step_tokens = 6,
                                               .longest_row_tokens = 7,
                                               .step_seconds = 0.5,
                                               .micro_batch_size = 8,
                                               .max_seq_length = 9,
                                               .total_steps = 10};
  session_->end(ending);
  const auto report = heard();
  ASSERT_TRUE(report.result().result().has_memory_probe());
  const auto& probe = report.result().result().memory_probe();
  EXPECT_EQ(probe.peak_memory_bytes(), 5);
  EXPECT_EQ(probe.step_tokens(), 6);
  EXPECT_EQ(probe.longest_row_tokens(), 7);
  EXPECT_EQ(probe.step_seconds(), 0.5);
  EXPECT_EQ(probe.micro_batch_size(), 8U);
  EXPECT_EQ(probe.max_seq_length(), 9U);
  EXPECT_EQ(probe.total_steps(), 10);
}

// As job_memory.cc writes it.
TEST_F(MemoryFrameTest, WhatACheckMeasuresIsItsEventsMessage) {
  session_->event({Event::Level::kInfo, "estimate_updated", "checked",
                   R"({"peakMemoryBytes": "5", "stepSeconds": 0.5, "stepTokens": "6",
                       "longestRowTokens": "7", "microBatchSize": 8, "maxSeqLength": 9,
                       "totalSteps": "10"})"});
  const auto event = heard().event();
  EXPECT_EQ(event.type(), "estimate_updated");
  ASSERT_TRUE(event.has_estimate_updated());
  EXPECT_EQ(event.estimate_updated().peak_memory_bytes(), 5);
  EXPECT_EQ(event.estimate_updated().step_seconds(), 0.5);
  EXPECT_EQ(event.estimate_updated().step_tokens(), 6);
  EXPECT_EQ(event.estimate_updated().longest_row_tokens(), 7);
  EXPECT_EQ(event.estimate_updated().micro_batch_size(), 8U);
  EXPECT_EQ(event.estimate_updated().max_seq_length(), 9U);
  EXPECT_EQ(event.estimate_updated().total_steps(), 10);
}

TEST_F(MemoryFrameTest, AJobThatIsCheckedEndsAsAPausedOne) {
  Ending ending;
  ending.exit = Exit::kStopped;
  ending.stopped = StopReason::kPause;
  session_->end(ending);
  EXPECT_EQ(heard().result().outcome(), internal::v1::OUTCOME_PAUSED);
}

}  // namespace
}  // namespace dex::train
