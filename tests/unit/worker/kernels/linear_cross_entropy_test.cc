#include "worker/kernels/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <tuple>

#include "tests/unit/worker/kernels/tensors.h"

namespace dex::kernels {
namespace {

using testing::expect_close;
using testing::random_tensor;

struct Case {
  at::Tensor hidden, head, targets, weights;
};

// Every third row has no weight; its target is −100, as labels have it.
Case make_case(at::ScalarType type, int64_t rows, int64_t vocabulary) {
  Case c{random_tensor({rows, 24}, 1, type), random_tensor({vocabulary, 24}, 2, type),
         at::empty({rows}, at::kLong), at::empty({rows}, type)};
  for (int64_t i = 0; i < rows; ++i) {
    const bool skipped = i % 3 == 2;
    c.targets[i] = skipped ? -100 : (i * 31) % vocabulary;
    c.weights[i] = skipped ? 0.0 : 0.25 + 0.01 * static_cast<double>(i);
  }
  return c;
}

class LinearCrossEntropyTest
    : public ::testing::TestWithParam<std::tuple<at::ScalarType, int64_t, int64_t>> {};

TEST_P(LinearCrossEntropyTest, AgreesWithPlainOpsForwardAndGradient) {
  const auto [type, rows, vocabulary] = GetParam();
  const double tolerance = type == at::kFloat ? 1e-5 : 1e-12;
  const Case c = make_case(type, rows, vocabulary);
  const at::Tensor a = c.hidden.clone().requires_grad_(), b = c.hidden.clone().requires_grad_();
  LinearCrossEntropy op(16);
  const at::Tensor fast = op.loss(a, c.head, c.targets, c.weights);
  const at::Tensor plain = linear_cross_entropy_plain(b, c.head, c.targets, c.weights);
  expect_close(fast, plain, tolerance);
  (fast * 3).backward();
  (plain * 3).backward();
  expect_close(a.grad(), b.grad(), tolerance);
  EXPECT_FALSE(c.head.grad().defined());
}

INSTANTIATE_TEST_SUITE_P(Shapes, LinearCrossEntropyTest,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kDouble),
                                            ::testing::Values(1, 16, 51),
                                            ::testing::Values(3, 97, 1000)));

// Full fine-tuning trains the head as well.
TEST_P(LinearCrossEntropyTest, ATrainedHeadHasItsGradient) {
  const auto [type, rows, vocabulary] = GetParam();
  const Case c = make_case(type, rows, vocabulary);
  const at::Tensor fast = c.head.clone().requires_grad_(), plain = c.head.clone().requires_grad_();
  LinearCrossEntropy op(16);
  (op.loss(c.hidden, fast, c.targets, c.weights) * 3).backward();
  (linear_cross_entropy_plain(c.hidden, plain, c.targets, c.weights) * 3).backward();
  expect_close(fast.grad(), plain.grad(), type == at::kFloat ? 1e-5 : 1e-12);
}

TEST(LinearCrossEntropyRulesTest, ASumOverPartsIsTheWhole) {
  const Case c = make_case(at::kDouble, 40, 50);
  LinearCrossEntropy op;
  const double whole = op.loss(c.hidden, c.head, c.targets, c.weights).item<double>();
  double parts = 0;
  for (int64_t at = 0; at < 40; at += 8) {
    parts += op.loss(c.hidden.narrow(0, at, 8), c.head, c.targets.narrow(0, at, 8),
                     c.weights.narrow(0, at, 8))
                 .item<double>();
  }
  EXPECT_NEAR(whole, parts, 1e-12);
}

TEST(LinearCrossEntropyRulesTest, NoSupervisedRowGivesZeroAndNoGradient) {
  Case c = make_case(at::kFloat, 5, 11);
  c.weights.zero_();
  const at::Tensor x = c.hidden.clone().requires_grad_();
  const at::Tensor loss = LinearCrossEntropy().loss(x, c.head, c.targets, c.weights);
  EXPECT_EQ(loss.item<float>(), 0.0F);
  loss.backward();
  EXPECT_EQ(x.grad().abs().max().item<float>(), 0.0F);
}

TEST(LinearCrossEntropyRulesTest, RowLossesAreThoseOfEachRow) {
  const Case c = make_case(at::kFloat, 20, 60);
  at::Tensor best;
  const at::Tensor rows = LinearCrossEntropy(7).row_losses(c.hidden, c.head, c.targets, &best);
  const at::Tensor log_p = at::log_softmax(c.hidden.mm(c.head.t()).to(at::kDouble), 1);
  for (int64_t i = 0; i < 20; ++i) {
    const auto target = c.targets[i].item<int64_t>();
    if (target < 0) {
      EXPECT_EQ(rows[i].item<float>(), 0.0F);
      EXPECT_EQ(best[i].item<int64_t>(), -1);
    } else {
      EXPECT_NEAR(rows[i].item<double>(), -log_p[i][target].item<double>(), 1e-5);
      EXPECT_EQ(best[i].item<int64_t>(), log_p[i].argmax().item<int64_t>());
    }
  }
}

TEST(LinearCrossEntropyRulesTest, LargeLogitsAndNanAreSeen) {
  at::Tensor hidden = at::full({1, 2}, 100, at::kFloat);
  const at::Tensor head = at::tensor({1.0, 1.0, -1.0, -1.0}, at::kFloat).view({2, 2});
  const at::Tensor target = at::tensor({1}, at::kLong), weight = at::ones({1});
  EXPECT_NEAR(LinearCrossEntropy().loss(hidden, head, target, weight).item<double>(), 400, 1e-3);
  hidden[0][0] = std::nan("");
  EXPECT_TRUE(std::isnan(LinearCrossEntropy().loss(hidden, head, target, weight).item<double>()));
}

TEST(LinearCrossEntropyRulesTest, ATargetOutsideTheVocabularyIsRefused) {
  Case c = make_case(at::kFloat, 2, 11);
  c.targets[1] = 11;
  EXPECT_THROW(LinearCrossEntropy().loss(c.hidden, c.head, c.targets, c.weights),
               std::runtime_error);
}

}  // namespace
}  // namespace dex::kernels
