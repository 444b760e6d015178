#include "worker/kernels/paged_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "tests/unit/worker/kernels_serve/targets.h"

namespace dex::kernels {
namespace {

// A sequence of `tokens` tokens in blocks that lie in another order than their positions.
class PagedAttentionTest : public testing::TestWithParam<std::tuple<int, int, int, Number>> {
 protected:
  PagedAttentionTest() {
    const auto [dim, group, tokens, number] = GetParam();
    layout_ = {2, dim, number};
    tokens_ = tokens;
    const int64_t count = (tokens + kBlockTokens - 1) / kBlockTokens;
    memory_.assign(count * layout_.block_bytes(), 0);
    for (int64_t b = count - 1; b >= 0; --b) blocks_.push_back(static_cast<int32_t>(b));
    const auto keys = random_floats(int64_t{tokens} * 2 * dim, 5),
               values = random_floats(int64_t{tokens} * 2 * dim, 6);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t head = 0; head < 2; ++head) {
        const int64_t at = (t * 2 + head) * dim;
        write_kv(layout_, memory_.data() + blocks_[t / kBlockTokens] * layout_.block_bytes(), head,
                 t % kBlockTokens, &keys[at], &values[at]);
      }
    }
    queries_ = random_floats(group * dim, 7);
    for (float& q : queries_) q *= 4;  // sharp enough for one token to dominate now and then
  }

  std::vector<float> run(bool plain, const std::vector<int64_t>& visible, int first, int count,
                         const std::vector<int64_t>& hidden = {}, int64_t value_head = -1) {
    const auto [dim, group, tokens, number] = GetParam();
    std::vector<float> out(queries_.size(), -1);
    std::vector<const float*> in;
    std::vector<float*> to;
    for (int q = first; q < first + count; ++q) {
      in.push_back(queries_.data() + q * dim);
      to.push_back(out.data() + q * dim);
    }
    const AttentionTile tile{
        &layout_,
        1,
        memory_.data(),
        layout_.block_bytes(),
        blocks_,
        1 / std::sqrt(static_cast<float>(dim)),
        in,
        std::span(visible).subspan(first, count),
        to,
        std::span(hidden).subspan(hidden.empty() ? 0 : first, hidden.empty() ? 0 : count),
        value_head,
        largest_};
    AttentionScratch scratch(layout_);
    plain ? attend_plain(tile) : attend(tile, scratch);
    return out;
  }

  KvLayout layout_;
  int tokens_ = 0;
  std::vector<char> memory_;
  std::vector<int32_t> blocks_;
  std::vector<float> queries_;
  float* largest_ = nullptr;  // of the tiles that run() makes
};

TEST_P(PagedAttentionTest, AgreesWithTheFormulaAndIgnoresItsNeighbours) {
  const int group = std::get<1>(GetParam()), dim = std::get<0>(GetParam());
  std::vector<int64_t> visible;  // the last query sees all tokens, those before it fewer
  for (int q = 0; q < group; ++q) visible.push_back(std::max(1, tokens_ - (group - 1 - q) * 3));
  const auto want = run(true, visible, 0, group);
  for_each_target([&](const char* target) {
    const auto got = run(false, visible, 0, group);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 3e-6) << target << " at " << i;
    const auto alone = run(false, visible, group - 1, 1);
    for (int i = 0; i < dim; ++i) {
      ASSERT_EQ(alone[(group - 1) * dim + i], got[(group - 1) * dim + i]) << target;
    }
  });
}

// Windows of 1, 17 and 70 tokens: cuts inside a block, inside a span, and whole spans.
TEST_P(PagedAttentionTest, SeesOnlyTheWindow) {
  const int group = std::get<1>(GetParam()), dim = std::get<0>(GetParam());
  for (const int64_t window : {1, 17, 70}) {
    std::vector<int64_t> visible, hidden;
    for (int q = 0; q < group; ++q) {
      visible.push_back(std::max(1, tokens_ - (group - 1 - q) * 3));
      hidden.push_back(std::max<int64_t>(0, visible.back() - window));
    }
    const auto want = run(true, visible, 0, group, hidden);
    for_each_target([&](const char* target) {
      const auto got = run(false, visible, 0, group, hidden);
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 3e-6) << target << " window " << window << " at " << i;
      const auto alone = run(false, visible, group - 1, 1, hidden);
      for (int i = 0; i < dim; ++i)
        ASSERT_EQ(alone[(group - 1) * dim + i], got[(group - 1) * dim + i]) << target;
    });
    const auto all = run(true, visible, group - 1, 1);
    EXPECT_EQ(tokens_ > window, all != run(true, visible, group - 1, 1, hidden));
  }
}

// Head 1's keys on head 0's values: as if those were its own, to the bit.
TEST_P(PagedAttentionTest, MixesTheValuesOfAnotherHead) {
  const int group = std::get<1>(GetParam());
  const std::vector<int64_t> visible(static_cast<size_t>(group), tokens_);
  const auto own = run(false, visible, 0, group);
  const auto formula = run(true, visible, 0, group, {}, 0),
             fast = run(false, visible, 0, group, {}, 0);
  const int64_t head = layout_.head_elements() * bytes_of(layout_.number),
                keys = kBlockTokens * layout_.head_dim * bytes_of(layout_.number);
  for (size_t block = 0; block < blocks_.size(); ++block) {
    char* start = memory_.data() + static_cast<int64_t>(block) * layout_.block_bytes();
    std::copy(start + keys, start + head, start + head + keys);
  }
  EXPECT_EQ(fast, run(false, visible, 0, group));
  EXPECT_EQ(formula, run(true, visible, 0, group));
  EXPECT_NE(fast, own);
}

// Of the tokens in the window alone, and what is computed stays what it was.
TEST_P(PagedAttentionTest, TellsTheLargestScoreThatIsSeen) {
  const int group = std::get<1>(GetParam()), dim = std::get<0>(GetParam());
  std::vector<int64_t> visible, hidden;
  for (int q = 0; q < group; ++q) {
    visible.push_back(std::max(1, tokens_ - (group - 1 - q) * 3));
    hidden.push_back(std::max<int64_t>(0, visible.back() - 17));
  }
  const auto keys = random_floats(int64_t{tokens_} * 2 * dim, 5);  // as the fixture's
  double want = 0, most = 0;  // most: without what cancels, which rounding is relative to
  for (int q = 0; q < group; ++q) {
    for (int64_t t = hidden[q]; t < visible[q]; ++t) {
      double dot = 0, sizes = 0;
      for (int i = 0; i < dim; ++i) {
        const double term =
            static_cast<double>(queries_[q * dim + i]) * keys[(t * 2 + 1) * dim + i];
        dot += term;
        sizes += std::abs(term);
      }
      want = std::max(want, std::abs(dot) / std::sqrt(static_cast<double>(dim)));
      most = std::max(most, sizes / std::sqrt(static_cast<double>(dim)));
    }
  }
  const double near = most * (std::get<3>(GetParam()) == Number::kBf16 ? 1.0 / 256 : 1e-5);
  float plain = 0;
  largest_ = &plain;
  run(true, visible, 0, group, hidden);
  EXPECT_NEAR(plain, want, near);
  for_each_target([&](const char* target) {
    largest_ = nullptr;
    const auto unwatched = run(false, visible, 0, group, hidden);
    float fast = 0;
    largest_ = &fast;
    EXPECT_EQ(run(false, visible, 0, group, hidden), unwatched) << target;
    EXPECT_NEAR(fast, plain, 1e-5 * most) << target;
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, PagedAttentionTest,
                         testing::Combine(testing::Values(8, 20, 64, 96),
                                          testing::Values(1, 3, 7, 24),
                                          testing::Values(1, 15, 16, 63, 65, 200),
                                          testing::Values(Number::kF32, Number::kBf16)));

TEST(PagedAttention, DoesNotTouchWhatIsNotVisible) {
  KvLayout layout{1, 16, Number::kF32};
  std::vector<float> block(layout.block_elements(), std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> ones(16, 1.0F);
  write_kv(layout, block.data(), 0, 0, ones.data(), ones.data());
  const int32_t blocks[] = {0};
  const float* queries[] = {ones.data()};
  const int64_t visible[] = {1};
  std::vector<float> out(16);
  float* outputs[] = {out.data()};
  AttentionScratch scratch(layout);
  for_each_target([&](const char* target) {
    attend(
        {&layout, 0, block.data(), layout.block_bytes(), blocks, 0.25F, queries, visible, outputs},
        scratch);
    for (const float v : out) EXPECT_EQ(v, 1.0F) << target;
  });
}

// method.md §11.3, and the same without its first token.
TEST(PagedAttention, WeightsOfOneRow) {
  const KvLayout layout{1, 2, Number::kF32};
  std::vector<float> block(layout.block_elements());
  const float keys[][2] = {{.5F, -.2F}, {1, .3F}, {-.4F, .8F}, {.1F, .6F}}, value[] = {0, 0};
  for (int64_t t = 0; t < 4; ++t) write_kv(layout, block.data(), 0, t, keys[t], value);
  const float query[] = {1, 2};
  const float* queries[] = {query, query};
  const int64_t visible[] = {4, 4}, hidden[] = {0, 1};
  const std::vector<int32_t> blocks = {0};
  const AttentionTile tile{.layout = &layout,
                           .memory = block.data(),
                           .stride_bytes = layout.block_bytes(),
                           .blocks = blocks,
                           .scale = 1 / std::sqrt(2.0F),
                           .queries = queries,
                           .visible = visible,
                           .hidden = hidden};
  const double wanted[] = {0.119031, 0.343793, 0.259096, 0.278080};
  const auto all = attention_weights(tile, 0), some = attention_weights(tile, 1);
  ASSERT_EQ(all.size(), 4U);
  ASSERT_EQ(some.size(), 4U);
  EXPECT_EQ(some[0], 0);
  for (size_t t = 0; t < 4; ++t) {
    EXPECT_NEAR(all[t], wanted[t], 1e-6);
    if (t > 0) {
      EXPECT_NEAR(some[t], wanted[t] / (1 - wanted[0]), 2e-6);
    }
  }
}

TEST(PagedAttention, RoundsToTheNearestBf16) {
  KvLayout layout{1, 2, Number::kBf16};
  std::vector<uint16_t> block(layout.block_elements());
  // 1 + 2⁻⁸ is a tie: to even, 1. 1 + 3·2⁻⁸: up.
  const float key[] = {1.00390625F, 1.01171875F}, value[] = {-1.00390625F, std::nanf("")};
  write_kv(layout, block.data(), 0, 3, key, value);
  EXPECT_EQ(block[3], 0x3f80);
  EXPECT_EQ(block[kBlockTokens + 3], 0x3f82);
  EXPECT_EQ(block[2 * kBlockTokens + 3 * layout.padded_dim()], 0xbf80);
  EXPECT_GT(block[2 * kBlockTokens + 3 * layout.padded_dim() + 1] & 0x7fff, 0x7f80);
}

}  // namespace
}  // namespace dex::kernels
