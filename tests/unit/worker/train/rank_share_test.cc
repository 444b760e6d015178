#include "worker/train/rank_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/unit/worker/train/recording_session.h"
#include "worker/train/rank_session.h"

namespace dex::train::testing {
namespace {

TEST(RankShareTest, EveryMicroBatchIsComputedOnceAndNoRankHasMuchMore) {
  for (int32_t ranks = 1; ranks <= 9; ++ranks) {
    for (size_t count = 0; count <= 40; ++count) {
      std::vector<int> computed(count, 0);
      std::vector<int64_t> work;
      for (int32_t rank = 0; rank < ranks; ++rank) {
        const RankShare share{rank, ranks};
        work.push_back(0);
        for (size_t i = 0; i < count; ++i) {
          if (!share.has(i)) continue;
          ++computed[i];
          ++work.back();
        }
      }
      EXPECT_EQ(computed, std::vector<int>(count, 1)) << ranks << " ranks";
      const auto [least, most] = std::minmax_element(work.begin(), work.end());
      EXPECT_LE(*most - *least, 1) << ranks << " ranks, " << count << " micro-batches";
    }
  }
}

TEST(RankShareTest, ARankAloneHasAll) {
  for (size_t i = 0; i < 10; ++i) EXPECT_TRUE(RankShare{}.has(i));
}

TEST(RankSessionTest, SaysOnlyHowItEndsAndFollowsNoOrder) {
  RecordingSession heard;
  int orders = 2;
  heard.script = [&](const Progress&) -> Command {
    if (orders-- > 0) return {Command::Kind::kStop, "", StopReason::kDrain};
    return {};
  };
  RankSession session(heard);
  session.progress(Phase::kTraining, {});
  session.event({});
  session.checkpoint({});
  EXPECT_EQ(session.poll().kind, Command::Kind::kNone);
  EXPECT_EQ(orders, -1) << "what waits is taken, or it would be heard later";
  session.end({});
  EXPECT_TRUE(heard.phases.empty());
  EXPECT_TRUE(heard.events.empty());
  EXPECT_TRUE(heard.checkpoints.empty());
  EXPECT_EQ(heard.endings.size(), 1U);
}

TEST(RankSessionTest, AnAgentThatIsGoneEndsItToo) {
  RecordingSession heard;
  heard.script = [](const Progress&) -> Command {
    throw Stopped(StopReason::kDrain, "the agent is gone");
  };
  RankSession session(heard);
  EXPECT_THROW(session.poll(), Stopped);
}

}  // namespace
}  // namespace dex::train::testing
