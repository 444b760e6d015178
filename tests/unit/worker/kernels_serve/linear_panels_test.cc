#include "worker/kernels/linear_panels.h"

#include <gtest/gtest.h>

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

class LinearPanelsTest : public testing::TestWithParam<std::tuple<Shape, Number>> {
 protected:
  LinearPanelsTest() {
    x_ = random_floats(shape_.rows * stride(), 1);
    floats_ = random_floats(shape_.outputs * shape_.columns, 2);
    halves_ = upper_halves(floats_);
    bytes_.resize(floats_.size());
    scales_.resize(static_cast<size_t>(shape_.outputs));
    quantize_rows(floats_.data(), shape_.outputs, shape_.columns, bytes_.data(), scales_.data());
    const Number number = std::get<1>(GetParam());
    const void* stored = number == Number::kF32    ? static_cast<const void*>(floats_.data())
                         : number == Number::kBf16 ? static_cast<const void*>(halves_.data())
                                                   : bytes_.data();
    in_rows_ = {stored, number, shape_.outputs, shape_.columns, scales_.data()};
    // Exact sizes: a sanitizer sees what is read beyond them.
    panels_.resize(
        static_cast<size_t>(panel_elements(shape_.outputs, shape_.columns) * bytes_of(number)));
    const int64_t middle = shape_.outputs / 2 / kPanelOutputs * kPanelOutputs;
    pack_panels(in_rows_, 0, middle, panels_.data());
    pack_panels(in_rows_, middle, shape_.outputs, panels_.data());
    in_panels_ = in_rows_;
    in_panels_.data = panels_.data();
    in_panels_.panels = true;
    scratch_.resize(static_cast<size_t>(panel_scratch(shape_.columns)));
  }
  int64_t stride() const { return shape_.columns + 5; }
  std::vector<float> start() const { return random_floats(shape_.rows * shape_.outputs, 3); }

  std::vector<float> plain(int64_t begin, Store store) const {
    auto y = start();
    linear_plain(x_.data(), stride(), shape_.rows, in_rows_, begin, shape_.outputs, y.data(),
                 shape_.outputs, store);
    return y;
  }
  std::vector<float> fast(int64_t begin, Store store) {
    auto y = start();
    linear_panels(x_.data(), stride(), shape_.rows, in_panels_, begin, shape_.outputs, y.data(),
                  shape_.outputs, store, scratch_.data());
    return y;
  }

  const Shape shape_ = std::get<0>(GetParam());
  std::vector<float> x_, floats_, scales_, scratch_;
  std::vector<uint16_t> halves_;
  std::vector<int8_t> bytes_;
  std::vector<char> panels_;
  WeightView in_rows_, in_panels_;
};

TEST_P(LinearPanelsTest, AgreesWithPlainSumsOnEveryTarget) {
  const double tolerance = 4e-7 * static_cast<double>(shape_.columns) + 1e-6;
  for (const int64_t begin : {int64_t{0}, shape_.outputs / 3}) {
    for (const Store store : {Store::kSet, Store::kAdd}) {
      const auto want = plain(begin, store);
      for_each_target([&](const char* target) {
        const auto got = fast(begin, store);
        for (size_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(got[i], want[i], tolerance) << target << " at " << i;
      });
    }
  }
}

// Alone, where nothing is widened beforehand, and shared out in another way.
TEST_P(LinearPanelsTest, ARowDoesNotDependOnItsNeighbours) {
  for_each_target([&](const char* target) {
    const auto all = fast(0, Store::kSet);
    const int64_t row = shape_.rows - 1, middle = shape_.outputs / 2;
    std::vector<float> one(static_cast<size_t>(shape_.outputs));
    for (const auto& [begin, end] : {std::pair{int64_t{0}, middle}, {middle, shape_.outputs}})
      linear_panels(x_.data() + row * stride(), stride(), 1, in_panels_, begin, end, one.data(),
                    shape_.outputs, Store::kSet, scratch_.data());
    for (int64_t n = 0; n < shape_.outputs; ++n)
      ASSERT_EQ(one[n], all[row * shape_.outputs + n]) << target << " output " << n;
  });
}

std::string case_name(const testing::TestParamInfo<LinearPanelsTest::ParamType>& info) {
  const auto& [shape, number] = info.param;
  return std::to_string(shape.rows) + "x" + std::to_string(shape.outputs) + "x" +
         std::to_string(shape.columns) +
         (number == Number::kF32    ? "f32"
          : number == Number::kBf16 ? "bf16"
                                    : "int8");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LinearPanelsTest,
    testing::Combine(testing::Values(Shape{1, 1, 1}, Shape{1, 64, 576}, Shape{2, 40, 64},
                                     Shape{3, 9, 33}, Shape{4, 31, 100}, Shape{7, 70, 15},
                                     Shape{8, 32, 1536}, Shape{15, 48, 96}, Shape{17, 37, 65},
                                     Shape{33, 100, 48}, Shape{70, 14, 130}),
                     testing::Values(Number::kF32, Number::kBf16, Number::kInt8)),
    case_name);

}  // namespace
}  // namespace dex::kernels
