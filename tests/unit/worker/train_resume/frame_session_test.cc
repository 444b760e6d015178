// What the trainer makes of the agent's frames. No LibTorch here, since protobuf is.
#include "worker/train/frame_session.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/frame_channel.h"

namespace dex::train {
namespace {

using dex::internal::v1::TrainerCommand;

constexpr int64_t kSoonMs = 20'000;

class FrameSessionTest : public testing::Test {
 protected:
  FrameSessionTest() {
    auto pair = base::FrameChannel::pair();
    agent_ = std::move(pair.value().first);
    trainer_ = std::make_unique<base::FrameChannel>(std::move(pair.value().second));
  }
  void send(const TrainerCommand& command) {
    EXPECT_TRUE(agent_->write(command.SerializeAsString(), kSoonMs).ok());
  }

  base::StopSignals signals_;
  base::SystemClock clock_;
  std::unique_ptr<base::FrameChannel> agent_, trainer_;
};

TEST_F(FrameSessionTest, CommandsComeInTheirOrderAndWhole) {
  FrameSession session(*trainer_, signals_, clock_);
  EXPECT_EQ(session.poll().kind, Command::Kind::kNone);

  TrainerCommand pointers;
  pointers.mutable_acknowledged()->set_uri("/data/attempt-1/step-4");
  pointers.mutable_acknowledged()->set_offered("/data/attempt-1/step-8");
  send(pointers);
  TrainerCommand request;
  request.mutable_checkpoint()->set_request("ckpt-1");
  send(request);
  TrainerCommand stop;
  stop.mutable_stop()->set_reason(TrainerCommand::Stop::REASON_PAUSE);
  send(stop);

  const Command first = session.poll();
  EXPECT_EQ(first.kind, Command::Kind::kAcknowledged);
  EXPECT_EQ(first.acknowledged, "/data/attempt-1/step-4");
  EXPECT_EQ(first.offered, "/data/attempt-1/step-8");
  const Command second = session.poll();
  EXPECT_EQ(second.kind, Command::Kind::kCheckpoint);
  EXPECT_EQ(second.request, "ckpt-1");
  EXPECT_EQ(second.acknowledged, "");
  const Command third = session.poll();
  EXPECT_EQ(third.kind, Command::Kind::kStop);
  EXPECT_EQ(third.reason, StopReason::kPause);
  EXPECT_EQ(session.poll().kind, Command::Kind::kNone);
}

}  // namespace
}  // namespace dex::train
