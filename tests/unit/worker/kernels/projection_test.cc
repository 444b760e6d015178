#include "worker/kernels/projection.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/worker/kernels/tensors.h"

namespace dex::kernels {
namespace {

using at::Tensor;
using testing::expect_close;
using testing::gradients;
using testing::random_tensor;

struct ProjectionCase {
  bool bias, term, dropped;  // dropped: the term reads another x than the weight
};

class ProjectionTest : public ::testing::TestWithParam<std::tuple<at::ScalarType, int>> {
 protected:
  [[nodiscard]] ProjectionCase what() const {
    return std::vector<ProjectionCase>{
        {false, false, false},
        {true, false, false},
        {false, true, false},
        {true, true, true}}[static_cast<size_t>(std::get<1>(GetParam()))];
  }
};

TEST_P(ProjectionTest, AgreesWithPlainOpsForwardAndGradient) {
  const auto type = std::get<0>(GetParam());
  const double tolerance = type == at::kFloat ? 1e-5 : 1e-12;
  const ProjectionCase which = what();
  std::vector<Tensor> in{random_tensor({37, 20}, 1, type), random_tensor({12, 20}, 2, type)};
  if (which.bias) in.push_back(random_tensor({12}, 3, type));
  if (which.term) {
    in.push_back(random_tensor({3, 20}, 4, type));
    in.push_back(random_tensor({12, 3}, 5, type));
  }
  if (which.dropped) in.push_back(random_tensor({37, 20}, 6, type));
  const auto call = [&](auto op) {
    return [&, op](const std::vector<Tensor>& v) {
      size_t at = 2;
      const Tensor bias = which.bias ? v[at++] : Tensor();
      if (!which.term) return op(v[0], v[1], bias, LowRankTerm{});
      const LowRankTerm term{which.dropped ? v.back() : v[0], v[at], v[at + 1], 1.75};
      return op(v[0], v[1], bias, term);
    };
  };
  const auto fast = call(projection), plain = call(projection_plain);
  expect_close(fast(in), plain(in), tolerance);
  const auto found = gradients(fast, in), expected = gradients(plain, in);
  for (size_t i = 0; i < in.size(); ++i)
    expect_close(found[i], expected[i], tolerance, std::to_string(i).c_str());
}

INSTANTIATE_TEST_SUITE_P(Cases, ProjectionTest,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kDouble),
                                            ::testing::Range(0, 4)));

// What is frozen costs no gradient, and its input is not kept for one.
TEST(ProjectionFrozenTest, KeepsNoInputAndGivesNoGradient) {
  const Tensor weight = random_tensor({6, 5}, 2);
  Tensor leaf = random_tensor({4, 5}, 1).requires_grad_();
  Tensor x = leaf * 2;
  const Tensor y = projection(x, weight);
  const auto owners = x.use_count();
  const Tensor trained = weight.clone().requires_grad_();
  const Tensor z = projection(x, trained);
  EXPECT_GT(x.use_count(), owners);
  (y.sum() + z.sum()).backward();
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_TRUE(trained.grad().defined());
  expect_close(leaf.grad(), weight.sum(0).expand({4, 5}) * 4, 1e-6);
}

// The caller adds the residual stream into the result.
TEST(ProjectionFreshTest, TheResultMayBeAddedToInPlace) {
  const Tensor x = random_tensor({4, 5}, 1).requires_grad_(), w = random_tensor({5, 5}, 2);
  projection(x, w).add_(x).sum().backward();
  expect_close(x.grad(), (w.sum(0) + 1).expand({4, 5}), 1e-6);
}

}  // namespace
}  // namespace dex::kernels
