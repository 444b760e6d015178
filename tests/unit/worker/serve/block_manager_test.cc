#include "worker/serve/block_manager.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

namespace dex::serve {
namespace {

std::vector<int32_t> count_from(int32_t first, int32_t count) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Acquires and declares everything computed.
BlockManager::Lease computed(BlockManager& blocks, uint64_t adapter,
                             const std::vector<int32_t>& tokens) {
  auto lease = blocks.acquire(adapter, tokens);
  EXPECT_TRUE(lease.has_value());
  blocks.publish(*lease, tokens, static_cast<int32_t>(tokens.size()));
  return *lease;
}

TEST(BlockManager, SharesBlocksOfTheSameAdapterOnly) {
  BlockManager blocks({.block_count = 10, .block_tokens = 4});
  const auto tokens = count_from(0, 10);
  const auto first = computed(blocks, 7, tokens);
  EXPECT_EQ(first.cached_tokens, 0);
  EXPECT_EQ(blocks.free_blocks(), 7);

  const auto same = blocks.acquire(7, tokens);
  ASSERT_TRUE(same);
  EXPECT_EQ(same->cached_tokens, 8);
  EXPECT_EQ(same->blocks[0], first.blocks[0]);
  EXPECT_EQ(same->blocks[1], first.blocks[1]);
  EXPECT_NE(same->blocks[2], first.blocks[2]);
  EXPECT_EQ(blocks.free_blocks(), 6);

  const auto other = blocks.acquire(8, tokens);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->cached_tokens, 0);
}

TEST(BlockManager, TheLastTokenNeverCountsAsCached) {
  BlockManager blocks({.block_count = 10, .block_tokens = 4});
  const auto tokens = count_from(0, 8);
  blocks.release(computed(blocks, 0, tokens));
  const auto again = blocks.acquire(0, tokens);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->cached_tokens, 4);
}

TEST(BlockManager, WhatIsNotComputedIsNotShared) {
  BlockManager blocks({.block_count = 10, .block_tokens = 4});
  const auto tokens = count_from(0, 12);
  auto first = blocks.acquire(0, tokens);
  blocks.publish(*first, tokens, 7);  // one block is full
  EXPECT_EQ(blocks.acquire(0, tokens)->cached_tokens, 4);
}

TEST(BlockManager, SameTokensElsewhereAreAnotherBlock) {
  BlockManager blocks({.block_count = 10, .block_tokens = 2});
  const std::vector<int32_t> tokens = {1, 2, 1, 2, 9};
  const auto lease = computed(blocks, 0, tokens);
  const std::vector<int32_t> shifted = {5, 5, 1, 2, 9};
  EXPECT_EQ(blocks.acquire(0, shifted)->cached_tokens, 0);
}

TEST(BlockManager, AllOrNothing) {
  BlockManager blocks({.block_count = 4, .block_tokens = 4});
  auto held = computed(blocks, 0, count_from(0, 9));
  EXPECT_EQ(blocks.free_blocks(), 1);
  // Shares two blocks but needs two more.
  auto longer = count_from(0, 8);
  for (const int32_t t : count_from(50, 8)) longer.push_back(t);
  EXPECT_FALSE(blocks.acquire(0, longer));
  EXPECT_EQ(blocks.free_blocks(), 1);
  EXPECT_FALSE(blocks.extend(held, 17));
  EXPECT_EQ(held.blocks.size(), 3U);
  EXPECT_TRUE(blocks.extend(held, 16));
  EXPECT_EQ(blocks.free_blocks(), 0);
}

TEST(BlockManager, FreedBlocksAreFoundUntilTheyAreReusedOldestFirst) {
  BlockManager blocks({.block_count = 4, .block_tokens = 2});
  const auto a = count_from(0, 5), b = count_from(100, 3);
  blocks.release(computed(blocks, 0, a));            // three blocks, two of them known
  auto one = blocks.acquire(0, count_from(200, 2));  // takes the one that was never used
  auto two = blocks.acquire(0, b);                   // then the end of `a`, then …
  ASSERT_TRUE(one && two);
  EXPECT_EQ(blocks.acquire(0, std::vector<int32_t>{0, 1})->cached_tokens,
            0);  // the last block: never cached
  blocks.release(*one);
  const auto again = blocks.acquire(0, std::vector<int32_t>{0, 1, 7});
  EXPECT_FALSE(again && again->cached_tokens > 2);
}

TEST(BlockManager, RefusesAnEmptyPool) {
  EXPECT_THROW(BlockManager({.block_count = 0}), std::runtime_error);
}

// Against a model that knows which (adapter, prefix) each block holds: a shared block always holds
// exactly that, a block is never in two hands unless shared, and no block is lost.
TEST(BlockManager, BehavesAsItsModelUnderRandomUse) {
  for (const uint32_t seed : {1U, 2U, 3U, 4U, 5U}) {
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) { return static_cast<int32_t>(random() % n); };
    BlockManager blocks({.block_count = 24, .block_tokens = 3});
    using Content = std::pair<uint64_t, std::vector<int32_t>>;
    std::map<int32_t, Content> written;  // block → adapter and all tokens up to its end
    struct Live {
      uint64_t adapter;
      std::vector<int32_t> tokens;
      BlockManager::Lease lease;
    };
    std::vector<Live> live;
    int hits = 0;
    for (int step = 0; step < 4000; ++step) {
      const int32_t what = below(10);
      if (what < 4) {
        std::vector<int32_t> tokens(1 + below(14));
        for (int32_t& t : tokens) t = below(2);
        const auto adapter = static_cast<uint64_t>(below(2));
        const int32_t before = blocks.free_blocks();
        auto lease = blocks.acquire(adapter, tokens);
        if (!lease) {
          ASSERT_EQ(blocks.free_blocks(), before);
          continue;
        }
        ASSERT_EQ(lease->blocks.size(), (tokens.size() + 2) / 3);
        ASSERT_LT(lease->cached_tokens, static_cast<int32_t>(tokens.size()));
        for (int32_t i = 0; i < lease->cached_tokens / 3; ++i) {
          const Content want = {adapter, {tokens.begin(), tokens.begin() + (i + 1) * 3}};
          ASSERT_EQ(written.at(lease->blocks[i]), want) << "seed " << seed << " step " << step;
          ++hits;
        }
        live.push_back({adapter, tokens, *lease});
      } else if (!live.empty()) {
        const auto at = static_cast<size_t>(below(static_cast<uint32_t>(live.size())));
        Live& one = live[at];
        if (what < 6) {
          const auto now = below(static_cast<uint32_t>(one.tokens.size() + 1));
          for (int32_t i = one.lease.published; (i + 1) * 3 <= now; ++i) {
            written[one.lease.blocks[i]] = {one.adapter,
                                            {one.tokens.begin(), one.tokens.begin() + (i + 1) * 3}};
          }
          blocks.publish(one.lease, one.tokens, now);
        } else if (what < 8) {
          one.tokens.push_back(below(2));
          if (!blocks.extend(one.lease, static_cast<int32_t>(one.tokens.size())))
            one.tokens.pop_back();
        } else {
          blocks.release(one.lease);
          live.erase(live.begin() + static_cast<int64_t>(at));
        }
      }
      std::set<int32_t> held;
      for (const Live& one : live) {
        for (size_t i = 0; i < one.lease.blocks.size(); ++i) {
          const bool fresh = held.insert(one.lease.blocks[i]).second;
          // Only published blocks may be in several hands.
          if (!fresh) {
            ASSERT_LT(i, static_cast<size_t>(one.lease.published));
          }
        }
      }
      ASSERT_EQ(blocks.free_blocks(), 24 - static_cast<int32_t>(held.size()))
          << "seed " << seed << " step " << step;
    }
    EXPECT_GT(hits, 100);
  }
}

}  // namespace
}  // namespace dex::serve
