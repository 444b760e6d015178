#include "worker/serve/batcher.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

namespace dex::serve {
namespace {

std::unique_ptr<Schedulable> prompt(int32_t tokens, int32_t first = 0) {
  auto out = std::make_unique<Schedulable>();
  for (int32_t i = 0; i < tokens; ++i) out->tokens.push_back(first + i);
  out->prompt_tokens = tokens;
  return out;
}

// Runs the plan: whoever reaches the end gets a token.
void run(Batcher& batcher, const Plan& plan) {
  for (const auto* shares : {&plan.decode, &plan.prefill}) {
    for (const Share& share : *shares) {
      batcher.computed(share);
      if (share.reaches_end()) share.sequence->tokens.push_back(1);
    }
  }
}

TEST(Batcher, CutsPromptsAndDecodesBesideThem) {
  BlockManager blocks({.block_count = 100, .block_tokens = 16});
  Batcher batcher({.max_running = 4, .chunk_tokens = 64}, blocks);
  auto a = prompt(10), b = prompt(150, 1000);
  batcher.add(a.get());
  auto plan = batcher.plan();
  ASSERT_EQ(plan.prefill.size(), 1U);
  EXPECT_EQ(plan.prefill[0].count, 10);
  EXPECT_TRUE(plan.decode.empty());
  run(batcher, plan);

  batcher.add(b.get());
  std::vector<int32_t> counts;
  for (int i = 0; i < 3; ++i) {
    plan = batcher.plan();
    ASSERT_EQ(plan.decode.size(), 1U) << i;  // never stalled by the long prompt
    EXPECT_EQ(plan.decode[0].sequence, a.get());
    EXPECT_EQ(plan.decode[0].first, 10 + i);
    counts.push_back(plan.prefill.at(0).count);
    run(batcher, plan);
  }
  EXPECT_EQ(counts, (std::vector<int32_t>{64, 64, 22}));
  plan = batcher.plan();
  EXPECT_EQ(plan.decode.size(), 2U);
  EXPECT_TRUE(plan.prefill.empty());
}

TEST(Batcher, SharesAChunkAmongPrompts) {
  BlockManager blocks({.block_count = 100, .block_tokens = 16});
  Batcher batcher({.max_running = 4, .chunk_tokens = 128}, blocks);
  auto a = prompt(1000), b = prompt(40, 2000);
  batcher.add(a.get());
  batcher.add(b.get());
  const auto plan = batcher.plan();
  ASSERT_EQ(plan.prefill.size(), 2U);
  int32_t total = 0;
  for (const Share& share : plan.prefill) {
    total += share.count;
    if (share.sequence == b.get()) {
      EXPECT_TRUE(share.reaches_end());
    }
  }
  EXPECT_EQ(total, 128);
}

TEST(Batcher, AloneTheLastTokenOfAPromptIsStillPrompt) {
  BlockManager blocks({.block_count = 100, .block_tokens = 16});
  Batcher batcher({.max_running = 4, .chunk_tokens = 32}, blocks);
  auto a = prompt(33);
  batcher.add(a.get());
  run(batcher, batcher.plan());
  const auto plan = batcher.plan();
  EXPECT_TRUE(plan.decode.empty());
  ASSERT_EQ(plan.prefill.size(), 1U);
  EXPECT_EQ(plan.prefill[0].count, 1);
}

TEST(Batcher, WaitsForBlocksAndGoesOnWhenTheyAreFree) {
  BlockManager blocks({.block_count = 4, .block_tokens = 16});
  Batcher batcher({.max_running = 4, .chunk_tokens = 128}, blocks);
  auto a = prompt(48), b = prompt(40, 1000);
  batcher.add(a.get());
  batcher.add(b.get());
  run(batcher, batcher.plan());
  EXPECT_EQ(batcher.running(), 1U);
  EXPECT_EQ(batcher.waiting(), 1U);
  batcher.remove(a.get());
  const auto plan = batcher.plan();
  ASSERT_EQ(plan.prefill.size(), 1U);
  EXPECT_EQ(plan.prefill[0].sequence, b.get());
}

TEST(Batcher, TheYoungestMakesRoomAndComesBack) {
  BlockManager blocks({.block_count = 5, .block_tokens = 4});
  Batcher batcher({.max_running = 4, .chunk_tokens = 128}, blocks);
  auto a = prompt(8), b = prompt(7, 1000);  // two blocks each, one block is left
  batcher.add(a.get());
  batcher.add(b.get());
  std::vector<size_t> sizes;
  for (int i = 0; i < 12 && batcher.preemptions() == 0; ++i) run(batcher, batcher.plan());
  EXPECT_EQ(batcher.preemptions(), 1);
  EXPECT_EQ(batcher.running(), 1U);
  EXPECT_TRUE(b->lease.blocks.empty());
  const auto kept = b->tokens.size();
  EXPECT_GT(kept, 7U);  // what it has made is not lost
  batcher.remove(a.get());
  const auto plan = batcher.plan();
  ASSERT_EQ(plan.prefill.size() + plan.decode.size(), 1U);
  const Share share = plan.prefill.empty() ? plan.decode[0] : plan.prefill[0];
  EXPECT_EQ(share.sequence, b.get());
  EXPECT_TRUE(share.reaches_end());
}

TEST(Batcher, RemoveIgnoresStrangersAndFreesBlocks) {
  BlockManager blocks({.block_count = 5, .block_tokens = 4});
  Batcher batcher({.max_running = 4, .chunk_tokens = 128}, blocks);
  auto a = prompt(8), stranger = prompt(3);
  batcher.add(a.get());
  run(batcher, batcher.plan());
  batcher.remove(stranger.get());
  EXPECT_EQ(blocks.free_blocks(), 3);
  batcher.remove(a.get());
  EXPECT_EQ(blocks.free_blocks(), 5);
}

// Everybody gets all of their tokens, in whatever order requests come and go, with a pool that is
// far too small.
TEST(Batcher, EverybodyEndsUnderRandomLoad) {
  for (const uint32_t seed : {1U, 2U, 3U, 4U}) {
    std::mt19937 random(seed);
    BlockManager blocks({.block_count = 12, .block_tokens = 4});
    Batcher batcher({.max_running = 5, .chunk_tokens = 16}, blocks);
    std::vector<std::unique_ptr<Schedulable>> live;
    std::vector<size_t> wanted;
    int started = 0, ended = 0;
    for (int step = 0; step < 20000 && ended < 200; ++step) {
      if (started < 200 && random() % 3 == 0) {
        // Few different prompts: prefixes are shared now and then. At most 48 tokens in all: it
        // fits.
        live.push_back(prompt(1 + static_cast<int32_t>(random() % 30),
                              static_cast<int32_t>(random() % 2) * 100));
        wanted.push_back(live.back()->tokens.size() + 1 + random() % 17);
        batcher.add(live.back().get());
        ++started;
      }
      const Plan plan = batcher.plan();
      int32_t prefill = 0;
      for (const auto* shares : {&plan.decode, &plan.prefill}) {
        for (const Share& share : *shares) {
          ASSERT_EQ(share.first, share.sequence->computed);
          ASSERT_GE(share.count, 1);
          ASSERT_GE(static_cast<int32_t>(share.sequence->lease.blocks.size()) * 4,
                    share.first + share.count);
          if (shares == &plan.prefill) prefill += share.count;
        }
      }
      ASSERT_LE(prefill, 16);
      ASSERT_LE(batcher.running(), 5U);
      ASSERT_FALSE(plan.decode.empty() && plan.prefill.empty() && !live.empty())
          << "stuck at step " << step;
      run(batcher, plan);
      for (size_t i = 0; i < live.size();) {
        const bool cancelled = random() % 200 == 0;
        if (live[i]->tokens.size() >= wanted[i] || cancelled) {
          batcher.remove(live[i].get());
          live.erase(live.begin() + static_cast<int64_t>(i));
          wanted.erase(wanted.begin() + static_cast<int64_t>(i));
          ++ended;
        } else {
          ++i;
        }
      }
    }
    EXPECT_EQ(ended, 200) << "seed " << seed;
    EXPECT_EQ(blocks.free_blocks(), 12) << "seed " << seed;
    EXPECT_GT(batcher.preemptions(), 0);
  }
}

}  // namespace
}  // namespace dex::serve
