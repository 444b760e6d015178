#include "worker/kernels/head_map.h"

#include <gtest/gtest.h>

#include <tuple>

#include "tests/unit/worker/kernels/tensors.h"
#include "tests/unit/worker/kernels_serve/targets.h"

namespace dex::kernels {
namespace {

using at::Tensor;
using testing::expect_close;
using testing::random_tensor;

class HeadMapTest
    : public ::testing::TestWithParam<std::tuple<at::ScalarType, int64_t, int64_t, bool>> {};

// More and fewer rows than are taken at a time; widths that are whole vectors and that are not.
TEST_P(HeadMapTest, OnePassAgreesWithPlainOpsOnEveryTarget) {
  const auto [type, rows, width, per_head] = GetParam();
  const double tolerance = type == at::kFloat ? 1e-5 : 1e-12;
  constexpr int64_t kHeads = 5;
  const Tensor x = random_tensor({rows, kHeads, width}, 1, type),
               y = random_tensor({rows, kHeads, width}, 2, type);
  const Tensor w_d = per_head ? random_tensor({kHeads, width, width}, 3, type)
                              : random_tensor({width, width}, 3, type);
  const Tensor mask = at::tensor({0.0, 1.0, 0.5, 0.0, 1.0}).to(type);
  const Tensor strength = branch_strength(at::full({1}, 0.4, x.options()), mask, -1);
  ASSERT_TRUE(is_head_map(w_d, kHeads, width));
  for_each_target([&](const char* target) {
    SCOPED_TRACE(target);
    const Tensor changed = plus_map(x, w_d, strength);
    expect_close(changed, plus_map_plain(x, w_d, strength), tolerance);
    EXPECT_TRUE(changed.select(1, 0).equal(x.select(1, 0)));
    expect_close(plus_map(x, transposed_map(w_d), strength),
                 plus_map_plain(x, transposed_map(w_d), strength), tolerance);
    const Tensor grams = head_grams(x, y, mask);
    const Tensor all = at::matmul(x.permute({1, 2, 0}), y.transpose(0, 1));
    expect_close(grams, all * mask.ne(0).view({-1, 1, 1}), tolerance);
    EXPECT_TRUE(head_grams(x, y, mask).equal(grams));
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, HeadMapTest,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kDouble),
                                            ::testing::Values(1, 48, 131),
                                            ::testing::Values(2, 24, 64), ::testing::Bool()));

TEST(HeadMapKindTest, ADenseMapIsNone) {
  EXPECT_FALSE(is_head_map(at::zeros({12, 12}), 3, 4));
  EXPECT_TRUE(is_head_map(at::zeros({4, 4}), 3, 4));
}

}  // namespace
}  // namespace dex::kernels
