#include "worker/kernels/linear_int4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/worker/kernels_serve/targets.h"

namespace dex::kernels {
namespace {

struct Shape {
  int64_t rows, outputs, columns;
};

class LinearInt4Test : public testing::TestWithParam<Shape> {
 protected:
  LinearInt4Test() {
    x_ = random_floats(shape_.rows * shape_.columns, 1);
    floats_ = random_floats(shape_.outputs * shape_.columns, 2);
    blocks_.resize(static_cast<size_t>(int4_blocks(shape_.outputs, shape_.columns)));
    quantize_int4(floats_.data(), shape_.outputs, shape_.columns, blocks_.data());
    w_ = {blocks_.data(), Number::kInt4, shape_.outputs, shape_.columns};
    groups_ = int4_groups(shape_.columns);
    in_.resize(static_cast<size_t>(shape_.rows * groups_));
    for (int64_t r = 0; r < shape_.rows; ++r)
      quantize_activations(x_.data() + r * shape_.columns, shape_.columns,
                           in_.data() + r * groups_);
  }
  std::vector<float> start() const { return random_floats(shape_.rows * stride(), 3); }
  int64_t stride() const { return shape_.outputs + 3; }

  std::vector<float> plain(int64_t begin, Store store) const {
    auto y = start();
    linear_int4_plain(in_.data(), shape_.rows, w_, begin, shape_.outputs, y.data(), stride(),
                      store);
    return y;
  }
  std::vector<float> fast(int64_t begin, Store store, ByteProducts products) const {
    auto y = start();
    linear_int4(in_.data(), shape_.rows, w_, begin, shape_.outputs, y.data(), stride(), store,
                products);
    return y;
  }

  const Shape shape_ = GetParam();
  int64_t groups_ = 0;
  std::vector<float> x_, floats_;
  std::vector<Int4Block> blocks_;
  std::vector<Int8Group> in_;
  WeightView w_;
};

// Outside [begin, outputs) y stays what it was: plain() leaves it alone too.
TEST_P(LinearInt4Test, AgreesWithPlainSumsOnEveryTarget) {
  const double tolerance = 1e-6 * static_cast<double>(shape_.columns) + 1e-5;
  for (const int64_t begin : {int64_t{0}, shape_.outputs / 3}) {
    for (const Store store : {Store::kSet, Store::kAdd}) {
      const auto want = plain(begin, store);
      for_each_target([&](const char* target) {
        const auto got = fast(begin, store, ByteProducts::kBest);
        for (size_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(got[i], want[i], tolerance) << target << " at " << i;
        EXPECT_EQ(fast(begin, store, ByteProducts::kInPairs), got)
            << target << ": whole numbers have one sum";
      });
    }
  }
}

TEST_P(LinearInt4Test, ARowDoesNotDependOnItsNeighbours) {
  for_each_target([&](const char* target) {
    const auto all = fast(0, Store::kSet, ByteProducts::kBest);
    const int64_t row = shape_.rows - 1, middle = shape_.outputs / 2;
    std::vector<float> one(static_cast<size_t>(shape_.outputs));
    for (const auto& [begin, end] : {std::pair{int64_t{0}, middle}, {middle, shape_.outputs}})
      linear_int4(in_.data() + row * groups_, 1, w_, begin, end, one.data(), shape_.outputs,
                  Store::kSet);
    for (int64_t n = 0; n < shape_.outputs; ++n)
      ASSERT_EQ(one[n], all[row * stride() + n]) << target << " output " << n;
  });
}

// What four and eight bits lose together, against the weights and activations as they were: random
// roundings of a 30th of the weights' range and a 250th of the activations', which add up as √k.
TEST_P(LinearInt4Test, IsNearTheProductOfWhatWasNotRounded) {
  const auto got = fast(0, Store::kSet, ByteProducts::kBest);
  const double far = 0.15 * std::sqrt(static_cast<double>(shape_.columns)) + 0.05;
  for (int64_t r = 0; r < shape_.rows; ++r) {
    for (int64_t n = 0; n < shape_.outputs; ++n) {
      double want = 0;
      for (int64_t k = 0; k < shape_.columns; ++k)
        want += double{x_[r * shape_.columns + k]} * floats_[n * shape_.columns + k];
      ASSERT_NEAR(got[r * stride() + n], want, far) << r << ", " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, LinearInt4Test,
                         testing::Values(Shape{1, 1, 1}, Shape{1, 16, 32}, Shape{1, 48, 576},
                                         Shape{2, 40, 64}, Shape{3, 9, 33}, Shape{4, 31, 100},
                                         Shape{7, 26, 15}, Shape{8, 20, 1536}, Shape{11, 17, 96},
                                         Shape{33, 25, 48}, Shape{70, 14, 130}),
                         [](const auto& info) {
                           return std::to_string(info.param.rows) + "x" +
                                  std::to_string(info.param.outputs) + "x" +
                                  std::to_string(info.param.columns);
                         });

TEST(QuantizeInt4, TakesTheGroupsLeastAndLargestAsItsEnds) {
  std::vector<float> w(32, 0.5F);
  w[0] = -1;
  w[5] = 2.75F;  // scale 0.25: numbers that bf16 holds
  w[31] = 0.9F;  // 7.6 steps above −1
  std::vector<Int4Block> blocks(1);
  quantize_int4(w.data(), 1, 32, blocks.data());
  const WeightView view{blocks.data(), Number::kInt4, 1, 32};
  EXPECT_EQ(int4_weight(view, 0, 0), -1);
  EXPECT_EQ(int4_weight(view, 0, 5), 2.75F);
  EXPECT_EQ(int4_weight(view, 0, 9), 0.5F);
  EXPECT_EQ(int4_weight(view, 0, 31), 1.0F);
}

TEST(QuantizeInt4, NoWeightIsOffByMoreThanHalfAStepAndBf16) {
  const int64_t rows = 37, columns = 65;
  const auto w = random_floats(rows * columns, 9);
  std::vector<Int4Block> blocks(static_cast<size_t>(int4_blocks(rows, columns)));
  quantize_int4(w.data(), rows, columns, blocks.data());
  const WeightView view{blocks.data(), Number::kInt4, rows, columns};
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < columns; ++k) {
      const int64_t first = k / kInt4Group * kInt4Group;
      const auto* group = w.data() + n * columns + first;
      const auto [least, most] =
          std::minmax_element(group, group + std::min(kInt4Group, columns - first));
      const float bound = (*most - *least) / 30 + std::max(-*least, *most) / 256;
      ASSERT_LE(std::fabs(int4_weight(view, n, k) - w[n * columns + k]), bound) << n << ", " << k;
    }
  }
}

// Groups that hold 16 values at even distances, as a file of llama.cpp's Q4_1 has them.
TEST(QuantizeInt4, WhatWasInFourBitsBeforeComesBack) {
  std::vector<float> w(64);
  for (size_t k = 0; k < w.size(); ++k)
    w[k] = -0.3125F + 0.0390625F * static_cast<float>(k * 7 % 16);
  std::vector<Int4Block> blocks(2);
  quantize_int4(w.data(), 1, 64, blocks.data());
  const WeightView view{blocks.data(), Number::kInt4, 1, 64};
  for (int64_t k = 0; k < 64; ++k) EXPECT_EQ(int4_weight(view, 0, k), w[static_cast<size_t>(k)]);
}

TEST(QuantizeInt4, AConstantGroupAndATinyOneAreExactEnough) {
  std::vector<float> w(64, -0.75F);
  for (size_t k = 32; k < 64; ++k) w[k] = k % 2 == 0 ? 1e-38F : -1e-38F;
  std::vector<Int4Block> blocks(2);
  quantize_int4(w.data(), 1, 64, blocks.data());
  const WeightView view{blocks.data(), Number::kInt4, 1, 64};
  for (int64_t k = 0; k < 32; ++k) EXPECT_EQ(int4_weight(view, 0, k), -0.75F);
  for (int64_t k = 32; k < 64; ++k) EXPECT_NEAR(int4_weight(view, 0, k), 0, 3e-38F);
}

TEST(QuantizeActivations, RoundsToTheNearestOf255Steps) {
  std::vector<float> x = random_floats(40, 4);
  x[3] = 2.54F;  // the largest of its group: steps of 0.02
  for_each_target([&](const char* target) {
    std::vector<Int8Group> groups(2);
    quantize_activations(x.data(), 40, groups.data());
    EXPECT_FLOAT_EQ(groups[0].scale, 0.02F) << target;
    EXPECT_EQ(groups[0].q[3], 127) << target;
    for (int64_t g = 0; g < 2; ++g) {
      int sum = 0;
      for (int64_t k = 0; k < kInt4Group; ++k) {
        const int64_t at = g * kInt4Group + k;
        const float value = at < 40 ? x[static_cast<size_t>(at)] : 0;
        EXPECT_LE(std::fabs(groups[g].scale * groups[g].q[k] - value), 0.5001F * groups[g].scale)
            << target << " at " << at;
        sum += groups[g].q[k];
      }
      EXPECT_FLOAT_EQ(groups[g].sum, groups[g].scale * static_cast<float>(sum)) << target;
    }
  });
}

TEST(QuantizeActivations, WhatIsNotFiniteShowsInEveryOutput) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> x(64, 0.5F);
    x[40] = bad;
    std::vector<Int4Block> blocks(2);
    quantize_int4(random_floats(64, 5).data(), 1, 64, blocks.data());
    for_each_target([&](const char* target) {
      std::vector<Int8Group> groups(2);
      quantize_activations(x.data(), 64, groups.data());
      float y = 0;
      linear_int4(groups.data(), 1, {blocks.data(), Number::kInt4, 1, 64}, 0, 1, &y, 1,
                  Store::kSet);
      EXPECT_TRUE(std::isnan(y)) << target << " made " << y;
    });
  }
}

TEST(QuantizeActivations, ZerosHaveNoScale) {
  const std::vector<float> x(32, 0.0F);
  Int8Group group;
  quantize_activations(x.data(), 32, &group);
  EXPECT_EQ(group.scale, 0);
  EXPECT_EQ(group.sum, 0);
}

}  // namespace
}  // namespace dex::kernels
