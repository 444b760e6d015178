#include "worker/kernels/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "tests/unit/worker/kernels_serve/targets.h"
#include "worker/kernels/quantize.h"

namespace dex::kernels {
namespace {

struct Shape {
  int64_t rows, outputs, columns;
};

class LinearTest : public testing::TestWithParam<std::tuple<Shape, Number>> {
 protected:
  LinearTest() {
    const auto [shape, number] = GetParam();
    shape_ = shape;
    x_ = random_floats(shape.rows * stride(), 1);
    floats_ = random_floats(shape.outputs * shape.columns, 2);
    halves_ = upper_halves(floats_);
    // Prefetching and vector loads must not read what is not there: exact sizes let a sanitizer see
    // it.
    halves_.shrink_to_fit();
    bytes_.resize(floats_.size());
    bytes_.shrink_to_fit();
    scales_.resize(static_cast<size_t>(shape.outputs));
    quantize_rows(floats_.data(), shape.outputs, shape.columns, bytes_.data(), scales_.data());
    const void* stored = number == Number::kF32    ? static_cast<const void*>(floats_.data())
                         : number == Number::kBf16 ? static_cast<const void*>(halves_.data())
                                                   : bytes_.data();
    w_ = {stored, number, shape.outputs, shape.columns, scales_.data()};
    begin_ = shape.outputs / 3;
  }
  int64_t stride() const { return shape_.columns + 5; }
  std::vector<float> start() const { return random_floats(shape_.rows * shape_.outputs, 3); }

  std::vector<float> plain(Store store) const {
    auto y = start();
    linear_plain(x_.data(), stride(), shape_.rows, w_, begin_, shape_.outputs, y.data(),
                 shape_.outputs, store);
    return y;
  }
  std::vector<float> few(Store store) const {
    auto y = start();
    linear_few(x_.data(), stride(), shape_.rows, w_, begin_, shape_.outputs, y.data(),
               shape_.outputs, store);
    return y;
  }
  std::vector<float> many(Store store) const {
    auto y = start();
    std::vector<float> packed(packed_size(shape_.rows, shape_.columns));
    pack_rows(x_.data(), stride(), shape_.rows, shape_.columns, 0,
              (shape_.rows + kTileRows - 1) / kTileRows, packed.data());
    std::vector<float> scratch(linear_scratch(shape_.columns));
    linear_many(packed.data(), shape_.rows, w_, begin_, shape_.outputs, y.data(), shape_.outputs,
                store, scratch.data());
    return y;
  }
  void expect_close(const std::vector<float>& got, const std::vector<float>& want,
                    const char* what) {
    const double tolerance = 4e-7 * static_cast<double>(shape_.columns) + 1e-6;
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], tolerance) << what << " at " << i;
    }
  }

  Shape shape_{};
  int64_t begin_ = 0;
  std::vector<float> x_, floats_;
  std::vector<uint16_t> halves_;
  std::vector<int8_t> bytes_;
  std::vector<float> scales_;
  WeightView w_;
};

TEST_P(LinearTest, AgreesWithPlainSumsOnEveryTarget) {
  for (const Store store : {Store::kSet, Store::kAdd}) {
    const auto want = plain(store);
    for_each_target([&](const char* target) {
      expect_close(few(store), want, target);
      expect_close(many(store), want, target);
    });
  }
}

TEST_P(LinearTest, ARowDoesNotDependOnItsNeighbours) {
  for_each_target([&](const char* target) {
    const auto all_few = few(Store::kSet), all_many = many(Store::kSet);
    const int64_t row = shape_.rows - 1;
    std::vector<float> one(shape_.outputs);
    linear_few(x_.data() + row * stride(), stride(), 1, w_, begin_, shape_.outputs, one.data(),
               shape_.outputs, Store::kSet);
    std::vector<float> packed(packed_size(1, shape_.columns)),
        scratch(linear_scratch(shape_.columns));
    pack_rows(x_.data() + row * stride(), stride(), 1, shape_.columns, 0, 1, packed.data());
    std::vector<float> other(shape_.outputs);
    // Shared out in another way, too.
    const int64_t middle = begin_ + (shape_.outputs - begin_) / 2;
    linear_many(packed.data(), 1, w_, begin_, middle, other.data(), shape_.outputs, Store::kSet,
                scratch.data());
    linear_many(packed.data(), 1, w_, middle, shape_.outputs, other.data(), shape_.outputs,
                Store::kSet, scratch.data());
    for (int64_t n = begin_; n < shape_.outputs; ++n) {
      ASSERT_EQ(one[n], all_few[row * shape_.outputs + n]) << target << " few, output " << n;
      ASSERT_EQ(other[n], all_many[row * shape_.outputs + n]) << target << " many, output " << n;
    }
  });
}

std::string case_name(const testing::TestParamInfo<LinearTest::ParamType>& info) {
  const auto& [shape, number] = info.param;
  return std::to_string(shape.rows) + "x" + std::to_string(shape.outputs) + "x" +
         std::to_string(shape.columns) +
         (number == Number::kF32    ? "f32"
          : number == Number::kBf16 ? "bf16"
                                    : "int8");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LinearTest,
    testing::Combine(testing::Values(Shape{1, 1, 1}, Shape{1, 13, 576}, Shape{2, 40, 64},
                                     Shape{3, 9, 33}, Shape{4, 31, 100}, Shape{7, 26, 15},
                                     Shape{8, 20, 1536}, Shape{16, 48, 96}, Shape{17, 37, 65},
                                     Shape{33, 25, 48}, Shape{70, 14, 130}),
                     testing::Values(Number::kF32, Number::kBf16, Number::kInt8)),
    case_name);

TEST(QuantizeTest, RoundsToTheNearestOf255StepsOfTheRowsLargest) {
  // By hand: scale 2.54/127 = 0.02; 1.27/0.02 = 63.5 goes to the even 64, 0.55/0.02 = 27.5 to 28.
  const std::vector<float> w = {2.54F, -1.27F, 0.55F, 0.009F, 0, 0, 0, 0, -4, 4, 1, 3};
  std::vector<int8_t> q(12);
  std::vector<float> scales(3);
  quantize_rows(w.data(), 3, 4, q.data(), scales.data());
  EXPECT_FLOAT_EQ(scales[0], 0.02F);
  EXPECT_EQ(scales[1], 0);
  EXPECT_FLOAT_EQ(scales[2], 4.0F / 127);
  EXPECT_EQ(q[0], 127);
  EXPECT_NEAR(q[1], -63.5, 0.5);
  EXPECT_NEAR(q[2], 27.5, 0.5);
  EXPECT_EQ(q[3], 0);
  EXPECT_EQ(std::vector<int8_t>(q.begin() + 4, q.end()),
            (std::vector<int8_t>{0, 0, 0, 0, -127, 127, 32, 95}));
}

TEST(QuantizeTest, NoWeightIsOffByMoreThanHalfAStep) {
  const auto w = random_floats(37 * 65, 9);
  std::vector<int8_t> q(w.size());
  std::vector<float> scales(37);
  quantize_rows(w.data(), 37, 65, q.data(), scales.data());
  for (size_t i = 0; i < w.size(); ++i) {
    const float scale = scales[i / 65];
    ASSERT_LE(std::fabs(w[i] - scale * q[i]), 0.5001F * scale) << i;
    ASSERT_GE(q[i], -127);
  }
}

TEST(QuantizeTest, RowsTooSmallForAScaleAreZeros) {
  const std::vector<float> w = {1e-38F, -1e-39F};
  std::vector<int8_t> q(2, 5);
  float scale = 5;
  quantize_rows(w.data(), 1, 2, q.data(), &scale);
  EXPECT_EQ(scale, 0);
  EXPECT_EQ(q, (std::vector<int8_t>{0, 0}));
}

}  // namespace
}  // namespace dex::kernels
