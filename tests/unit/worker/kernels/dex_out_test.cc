#include "worker/kernels/dex_out.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "tests/unit/worker/kernels/tensors.h"

namespace dex::kernels {
namespace {

using at::Tensor;
using testing::expect_close;
using testing::gradients;
using testing::numeric_gradient;
using testing::random_tensor;

enum Map { kShared, kPerHead, kDense };

struct Shape {
  int64_t rows, heads, width, hidden;
  Map map;
  bool gated;
  double sign;
  at::ScalarType type;
};

std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << s.rows << " rows, " << s.heads << " heads of " << s.width
             << (s.map == kShared    ? ", shared"
                 : s.map == kPerHead ? ", per head"
                                     : ", dense")
             << (s.gated ? ", gated" : "") << ", sign " << s.sign << ", " << s.type;
}

Tensor random_map(const Shape& s) {
  if (s.map == kPerHead) return random_tensor({s.heads, s.width, s.width}, 3, s.type);
  const int64_t width = s.map == kDense ? s.heads * s.width : s.width;
  return random_tensor({width, width}, 3, s.type);
}

// o, w_o, w_d, lambda and, where gated, gate: what is differentiated. Odd heads are selected, the
// first half way, so that each case has selected, partly selected and unselected ones.
std::vector<Tensor> make_inputs(const Shape& s) {
  std::vector<Tensor> in{random_tensor({s.rows, s.heads * s.width}, 1, s.type),
                         random_tensor({s.hidden, s.heads * s.width}, 2, s.type), random_map(s),
                         at::full({1}, 0.37, s.type)};
  if (s.gated) in.push_back(random_tensor({s.heads}, 4, s.type));
  return in;
}

Tensor make_mask(const Shape& s) {
  Tensor mask = at::zeros({s.heads}, s.type);
  for (int64_t h = 1; h < s.heads; h += 2) mask[h] = h == 1 && s.heads > 2 ? 0.5 : 1.0;
  return mask;
}

using Path = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                        const Tensor&, double);

std::function<Tensor(const std::vector<Tensor>&)> with(Path path, const Shape& s) {
  return [path, mask = make_mask(s), sign = s.sign](const std::vector<Tensor>& v) {
    return path(v[0], v[1], v[2], v.size() > 4 ? v[4] : Tensor(), v[3], mask, sign);
  };
}

// λ's gradient is a sum over every output of terms of either sign, so its rounding goes with their
// norm ‖∂Y/∂λ‖, not with what is left of the sum.
double lambda_scale(const std::function<Tensor(const std::vector<Tensor>&)>& op,
                    std::vector<Tensor> in) {
  const Tensor y = op(in);
  const double lambda = in[3].item<double>();
  in[3] = at::zeros_like(in[3]);
  return (y - op(in)).norm().item<double>() / lambda;
}

class DexOutTest : public ::testing::TestWithParam<Shape> {};

TEST_P(DexOutTest, AgreesWithPlainOpsForwardAndGradient) {
  const Shape& s = GetParam();
  const double tolerance = s.type == at::kFloat ? 2e-5 : 1e-10;
  const auto in = make_inputs(s);
  const auto plain = with(dex_out_plain, s);
  const auto expected = gradients(plain, in);
  for (const Path path : {dex_out, dex_out_folded, dex_out_branch}) {
    const auto fast = with(path, s);
    expect_close(fast(in), plain(in), tolerance);
    const auto found = gradients(fast, in);
    const char* names[] = {"o", "w_o", "w_d", "lambda", "gate"};
    for (size_t i = 0; i < in.size(); ++i) {
      if (i == 3) {
        EXPECT_NEAR(found[i].item<double>(), expected[i].item<double>(),
                    tolerance * lambda_scale(plain, in));
      } else {
        expect_close(found[i], expected[i], tolerance, names[i]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DexOutTest,
                         ::testing::Values(Shape{5, 2, 4, 6, kShared, false, -1, at::kDouble},
                                           Shape{5, 3, 4, 6, kPerHead, false, 1, at::kDouble},
                                           Shape{5, 3, 4, 6, kShared, true, 1, at::kDouble},
                                           Shape{1, 1, 2, 3, kShared, false, -1, at::kDouble},
                                           Shape{5, 3, 4, 6, kDense, false, 1, at::kDouble},
                                           Shape{5, 3, 4, 6, kDense, true, -1, at::kDouble},
                                           Shape{720, 9, 16, 48, kDense, false, 1, at::kFloat},
                                           Shape{9, 4, 8, 20, kPerHead, true, 1, at::kFloat},
                                           Shape{33, 9, 64, 576, kShared, false, -1, at::kFloat},
                                           Shape{720, 9, 16, 48, kPerHead, true, 1, at::kFloat},
                                           Shape{720, 9, 16, 48, kShared, false, -1, at::kFloat}));

// method.md §10 item 9.
TEST(DexOutGradientTest, AgreesWithFiniteDifferences) {
  for (const Map map : {kShared, kPerHead, kDense}) {
    for (const bool gated : {false, true}) {
      const Shape s{4, 3, 4, 5, map, gated, gated ? 1.0 : -1.0, at::kDouble};
      const auto in = make_inputs(s);
      for (const Path path : {dex_out_folded, dex_out_branch}) {
        const auto found = gradients(with(path, s), in);
        for (size_t i = 0; i < in.size(); ++i) {
          expect_close(found[i], numeric_gradient(with(path, s), in, i), 1e-8);
        }
      }
    }
  }
}

TEST(DexOutGradientTest, LambdaHasItsGradientWhereItIsZero) {
  const Shape s{4, 3, 4, 5, kShared, false, -1, at::kDouble};
  auto in = make_inputs(s);
  in[3].zero_();
  for (const Path path : {dex_out_folded, dex_out_branch}) {
    const auto found = gradients(with(path, s), in);
    expect_close(found[3], numeric_gradient(with(path, s), in, 3), 1e-8);
    EXPECT_GT(found[3].abs().item<double>(), 1e-3);
    EXPECT_EQ(found[2].abs().max().item<double>(), 0);  // ∂w_d carries the factor λ
  }
}

TEST(DexOutGradientTest, FrozenInputsGetNone) {
  const Shape s{4, 3, 4, 5, kPerHead, true, 1, at::kFloat};
  const auto in = make_inputs(s);
  for (const Path path : {dex_out_folded, dex_out_branch}) {
    auto v = in;
    v[2] = v[2].clone().requires_grad_();
    with(path, s)(v).sum().backward();
    EXPECT_TRUE(v[2].grad().defined());
    EXPECT_FALSE(v[0].grad().defined());
    EXPECT_FALSE(v[1].grad().defined());
  }
}

// method.md §10 item 1: bit for bit, −0 = 0, which is what at::equal says of floats.
TEST(DexOutIdentityTest, NoLambdaNoMaskOrNoDifferenceIsTheBase) {
  for (const int64_t rows : {3, 800}) {
    for (const bool gated : {false, true}) {
      const Shape s{rows, 9, 16, 48, kPerHead, gated, 1, at::kFloat};
      const auto in = make_inputs(s);
      const Tensor base = in[0].mm(in[1].t()), gate = gated ? in[4] : Tensor(), mask = make_mask(s);
      for (const Path path : {dex_out, dex_out_folded, dex_out_branch}) {
        EXPECT_TRUE(base.equal(path(in[0], in[1], in[2], gate, at::zeros({1}), mask, s.sign)));
        EXPECT_TRUE(
            base.equal(path(in[0], in[1], in[2], gate, in[3], at::zeros_like(mask), s.sign)));
        const Tensor closed = gated ? at::zeros_like(gate) : gate;
        EXPECT_TRUE(
            base.equal(path(in[0], in[1], at::zeros_like(in[2]), closed, in[3], mask, s.sign)));
      }
    }
  }
}

// method.md §10 item 6, seen through an identity as the output projection.
TEST(DexOutIdentityTest, UnselectedHeadsAreUntouched) {
  const Shape s{7, 4, 8, 32, kShared, true, 1, at::kFloat};
  const auto in = make_inputs(s);
  const Tensor changed = dex_out_branch(in[0], at::eye(32), in[2], in[4], in[3], make_mask(s), 1);
  for (const int64_t head : {0, 2}) {
    EXPECT_TRUE(changed.narrow(1, head * 8, 8).equal(in[0].narrow(1, head * 8, 8)));
  }
  for (const int64_t head : {1, 3}) {
    EXPECT_FALSE(changed.narrow(1, head * 8, 8).equal(in[0].narrow(1, head * 8, 8)));
  }
}

// method.md §10 item 8.
TEST(DexOutIdentityTest, MinusIsPlusWithTheNegatedMapBitForBit) {
  const Shape s{7, 4, 8, 32, kPerHead, false, -1, at::kFloat};
  const auto in = make_inputs(s);
  const Tensor mask = make_mask(s);
  for (const Path path : {dex_out_folded, dex_out_branch}) {
    EXPECT_TRUE(path(in[0], in[1], in[2], Tensor(), in[3], mask, -1)
                    .equal(path(in[0], in[1], -in[2], Tensor(), in[3], mask, 1)));
  }
}

// method.md §11.1, with the rows of W_O an identity so that y is O'.
class WorkedNumbersTest : public ::testing::Test {
 protected:
  Tensor o = at::tensor({1.0, 2.0, 3.0, -1.0}, at::kDouble).view({1, 4});
  Tensor w_d = at::tensor({0.5, -1.0, 2.0, 0.25}, at::kDouble).view({2, 2});
  Tensor lambda = at::full({1}, 0.3, at::kDouble);
  Tensor second = at::tensor({0.0, 1.0}, at::kDouble), both = at::ones({2}, at::kDouble);

  void expect_heads(const std::vector<double>& expected, const Tensor& map, const Tensor& gate,
                    const Tensor& mask, double sign) {
    for (const Path path : {dex_out_folded, dex_out_branch, dex_out_plain}) {
      const Tensor found = path(o, at::eye(4, at::kDouble), map, gate, lambda, mask, sign);
      for (int64_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(found[0][i].item<double>(), expected[static_cast<size_t>(i)], 1e-9);
      }
    }
  }
};

TEST_F(WorkedNumbersTest, Forward) {
  const Tensor none;
  expect_heads({1, 2, 3.15, -0.025}, w_d, none, second, -1);
  expect_heads({-0.35, 2.15, 3.15, -0.025}, w_d, none, both, -1);
  expect_heads({1, 2, 2.85, -1.975}, w_d, none, second, 1);
  const Tensor other = at::tensor({1.0, 0.0, -0.5, 2.0}, at::kDouble).view({2, 2});
  expect_heads({-0.35, 2.15, 1.95, -0.4}, at::stack({w_d, other}), none, both, -1);
  expect_heads({1, 2, 2.55, -2.05}, w_d, at::full({2}, 0.5, at::kDouble), second, 1);
}

TEST_F(WorkedNumbersTest, ShareOfTheBranch) {
  const auto share = [&](const Tensor& mask) {
    const Tensor o_h = o.view({1, 2, 2}), weight = mask.view({1, 2, 1});
    return (0.3 * (dex_difference(o_h, w_d, {}) * weight).norm() / (o_h * weight).norm())
        .item<double>();
  };
  EXPECT_NEAR(share(second), 0.311950, 1e-6);
  EXPECT_NEAR(share(both), 0.433445, 1e-6);
}

TEST_F(WorkedNumbersTest, Fold) {
  const Tensor w_o =
      at::tensor({1.0, 0.0, 2.0, -1.0, 0.5, -1.0, 0.0, 3.0, 2.0, 1.0, -1.0, 0.5}, at::kDouble)
          .view({3, 4});
  const Tensor folded = fold_w_o(w_o, w_d, {}, lambda, second, -1);
  expect_close(folded,
               at::tensor({1.0, 0.0, 1.4, -2.125, 0.5, -1.0, 0.9, 2.775, 2.0, 1.0, -0.7, 1.0625},
                          at::kDouble)
                   .view({3, 4}),
               1e-12);
  const Tensor y = at::tensor({7.325, -1.575, 0.8375}, at::kDouble).view({1, 3});
  expect_close(o.mm(folded.t()), y, 1e-12);
  expect_close(dex_out_branch(o, w_o, w_d, {}, lambda, second, -1), y, 1e-12);
  expect_close(
      fold_w_o(w_o, w_d, at::full({2}, 0.5, at::kDouble), lambda, second, 1),
      at::tensor({0.85, 0.075, 2.45, 0.2, 0.5, -1.225, -0.9, 3.0, 2.075, 0.9625, -1.225, -0.1},
                 at::kDouble)
          .view({3, 4}),
      1e-12);
}

// method.md §11.7: the gradients of case 1 through W_O of §11.2, logits y/4, target 0.
TEST_F(WorkedNumbersTest, Gradients) {
  const Tensor w_o =
      at::tensor({1.0, 0.0, 2.0, -1.0, 0.5, -1.0, 0.0, 3.0, 2.0, 1.0, -1.0, 0.5}, at::kDouble)
          .view({3, 4});
  for (const Path path : {dex_out_folded, dex_out_branch}) {
    const Tensor map = w_d.clone().requires_grad_(), strength = lambda.clone().requires_grad_();
    const Tensor loss = at::cross_entropy_loss(path(o, w_o, map, {}, strength, second, -1) / 4,
                                               at::zeros({1}, at::kLong));
    EXPECT_NEAR(loss.item<double>(), 0.266659, 1e-6);
    loss.backward();
    expect_close(map.grad(),
                 at::tensor({0.139371, -0.125557, -0.046457, 0.041852}, at::kDouble).view({2, 2}),
                 1e-5);
    EXPECT_NEAR(strength.grad().item<double>(), 0.375971, 1e-6);
  }
}

TEST(DexOutErrorTest, NamesTheArgument) {
  const Tensor o = at::zeros({2, 8}), w_o = at::zeros({3, 8}), lambda = at::zeros({1}),
               mask = at::ones({2});
  try {
    dex_out(o, w_o, at::zeros({3, 3}), {}, lambda, mask, -1);
    FAIL() << "not refused";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()),
              "[dex_out] w_d must be [d, d], [H, d, d] or [H·d, H·d] with H = 2, d = 4, got Float "
              "[3, 3]");
  }
  EXPECT_THROW(dex_out(o, w_o, at::zeros({4, 4}), {}, lambda, at::ones({3}), -1),
               std::runtime_error);
  EXPECT_THROW(dex_out(o, w_o, at::zeros({4, 4}), at::zeros({3}), lambda, mask, -1),
               std::runtime_error);
}

}  // namespace
}  // namespace dex::kernels
