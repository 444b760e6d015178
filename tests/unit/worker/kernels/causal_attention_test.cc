#include "worker/kernels/causal_attention.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/unit/worker/kernels/tensors.h"
#include "tests/unit/worker/kernels_serve/targets.h"
#include "worker/kernels/attention_work.h"

namespace dex::kernels {
namespace {

using at::Tensor;
using testing::expect_close;
using testing::gradients;
using testing::random_tensor;

struct AttentionShape {
  int64_t heads, key_heads, width, value_width;
  std::vector<int64_t> bounds;
  int64_t window;
};

// Documents of one row, of less and more than a block of queries, and of more than a span of keys;
// widths that are whole vectors and that are not; windows shorter and longer than both.
std::vector<AttentionShape> attention_shapes() {
  const std::vector<int64_t> packed{0, 1, 48, 150, 151, 340}, whole{0, 1100};
  return {{3, 1, 64, 64, packed, 0}, {4, 2, 6, 6, packed, 0},  {2, 2, 24, 24, packed, 7},
          {4, 2, 16, 32, packed, 0}, {2, 1, 80, 80, whole, 0}, {2, 1, 8, 8, whole, 60},
          {1, 1, 2, 5, whole, 700},  {2, 2, 8, 8, whole, 1}};
}

std::vector<Tensor> attention_inputs(const AttentionShape& shape, at::ScalarType type) {
  const int64_t rows = shape.bounds.back();
  // Threefold: maps that are far from flat.
  return {random_tensor({rows, shape.heads, shape.width}, 1, type) * 3,
          random_tensor({rows, shape.key_heads, shape.width}, 2, type) * 3,
          random_tensor({rows, shape.key_heads, shape.value_width}, 3, type)};
}

class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~ThreadCount() { at::set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

class CausalAttentionTest
    : public ::testing::TestWithParam<std::tuple<at::ScalarType, size_t, int>> {};

TEST_P(CausalAttentionTest, AgreesWithPlainOpsForwardAndGradient) {
  const auto [type, index, threads] = GetParam();
  const ThreadCount here(threads);
  const AttentionShape shape = attention_shapes()[index];
  const double tolerance = type == at::kFloat ? 2e-5 : 1e-12;
  const auto fast = [&](const std::vector<Tensor>& in) {
    return causal_attention(in[0], in[1], in[2], shape.bounds, shape.window);
  };
  const auto plain = [&](const std::vector<Tensor>& in) {
    return causal_attention_plain(in[0], in[1], in[2], shape.bounds, shape.window);
  };
  const auto in = attention_inputs(shape, type);
  const Tensor expected = plain(in);
  const auto slopes = gradients(plain, in);
  for_each_target([&](const char* target) {
    SCOPED_TRACE(target);
    expect_close(fast(in), expected, tolerance);
    const auto found = gradients(fast, in);
    for (size_t i = 0; i < slopes.size(); ++i)
      expect_close(found[i], slopes[i], tolerance, i == 0 ? "q" : i == 1 ? "k" : "v");
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, CausalAttentionTest,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kDouble),
                                            ::testing::Range(size_t{0}, size_t{8}),
                                            ::testing::Values(1, 3)));

// What the bits depend on: a resumed job has to find them again.
TEST(CausalAttentionBitsTest, AreTheSameInEveryRunAndARowKnowsNothingOfLaterOnes) {
  const ThreadCount here(3);
  const AttentionShape shape = attention_shapes()[0];
  const auto in = attention_inputs(shape, at::kFloat);
  const auto op = [&](const std::vector<Tensor>& x) {
    return causal_attention(x[0], x[1], x[2], shape.bounds, shape.window);
  };
  const Tensor o = op(in);
  const auto slopes = gradients(op, in);
  for (int run = 0; run < 20; ++run) {
    ASSERT_TRUE(op(in).equal(o));
    const auto again = gradients(op, in);
    for (size_t i = 0; i < slopes.size(); ++i) ASSERT_TRUE(again[i].equal(slopes[i])) << i;
  }
  // Row 100 lies inside document 48 … 150.
  std::vector<Tensor> changed;
  for (const Tensor& x : in) changed.push_back(x.clone());
  for (Tensor& x : changed) x.narrow(0, 101, 49).mul_(-2);
  const Tensor other = op(changed);
  EXPECT_TRUE(other.narrow(0, 0, 101).equal(o.narrow(0, 0, 101)));
  EXPECT_FALSE(other.narrow(0, 101, 49).equal(o.narrow(0, 101, 49)));
  EXPECT_TRUE(other.narrow(0, 150, 190).equal(o.narrow(0, 150, 190)));
}

// Heads out of a wider tensor, as a product over several weights gives them.
TEST(CausalAttentionLayoutTest, ReadsHeadsWhereverTheyLie) {
  const Tensor all = random_tensor({70, 8, 12}, 5);
  const auto parts = [](const Tensor& x) {
    return std::vector<Tensor>{x.narrow(1, 0, 4), x.narrow(1, 4, 2), x.narrow(1, 6, 2)};
  };
  const auto fast = [&](const std::vector<Tensor>& in) {
    const auto p = parts(in[0]);
    return causal_attention(p[0], p[1], p[2]);
  };
  const auto plain = [&](const std::vector<Tensor>& in) {
    const auto p = parts(in[0]);
    return causal_attention_plain(p[0], p[1], p[2], {0, 70});
  };
  expect_close(fast({all}), plain({all}), 2e-5);
  expect_close(gradients(fast, {all})[0], gradients(plain, {all})[0], 2e-5);
}

TEST(CausalAttentionRefusalTest, NamesTheArgument) {
  const auto refusal = [](const Tensor& q, const Tensor& k, const std::vector<int64_t>& bounds) {
    try {
      causal_attention(q, k, k, bounds);
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Tensor q = random_tensor({5, 4, 8}, 1), k = random_tensor({5, 3, 8}, 2);
  EXPECT_EQ(refusal(q, k, {0, 5}),
            "[causal_attention] k's heads must divide q's, got Float [5, 3, 8]");
  EXPECT_EQ(refusal(q, q.narrow(2, 0, 4), {0, 5}),
            "[causal_attention] k must be [N, K, d] with q's N and d, got Float [5, 4, 4]");
  EXPECT_NE(refusal(q, q, {0, 4}).find("bounds must go from 0 to N"), std::string::npos);
}

TEST(AttentionWorkTest, EveryRowAndHeadOnceInSharesOfEqualWork) {
  const std::vector<int64_t> bounds{0, 512, 700, 701};
  const auto blocks = attention_blocks(bounds, 9, 3, 48);
  std::vector<int64_t> rows(9, 0);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const AttentionBlock& block = blocks[i];
    EXPECT_EQ(block.segment, block.document * 3 + block.head / 3);
    EXPECT_GE(block.segment, i == 0 ? 0 : blocks[i - 1].segment);
    rows[static_cast<size_t>(block.head)] += block.end - block.begin;
  }
  EXPECT_EQ(rows, std::vector<int64_t>(9, 701));
  for (const int64_t shares : {1, 2, 5}) {
    const auto first = attention_shares(blocks, 0, shares);
    ASSERT_EQ(static_cast<int64_t>(first.size()), shares + 1);
    EXPECT_EQ(first.front(), 0);
    EXPECT_EQ(first.back(), static_cast<int64_t>(blocks.size()));
    std::vector<double> work;
    for (int64_t s = 0; s < shares; ++s) {
      double sum = 0;
      for (int64_t i = first[s]; i < first[s + 1]; ++i)
        sum += static_cast<double>((blocks[i].end - blocks[i].begin) * blocks[i].end);
      work.push_back(sum);
    }
    EXPECT_LT(*std::max_element(work.begin(), work.end()),
              1.1 * *std::min_element(work.begin(), work.end()));
  }
  // Fewer blocks than shares: some do nothing.
  const auto few = attention_shares(std::span(blocks).first(1), 0, 4);
  EXPECT_EQ(few.size(), 5U);
  EXPECT_EQ(few.back(), 1);
}

}  // namespace
}  // namespace dex::kernels
