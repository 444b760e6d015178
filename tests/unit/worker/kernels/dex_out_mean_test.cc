#include "worker/kernels/dex_out_mean.h"

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

constexpr int64_t kRows = 11, kHeads = 4, kKvHeads = 2, kWidth = 4, kHidden = 6;
const std::vector<int64_t> kMeanBounds{0, 4, 5, 11};

enum MeanMap {
  kMeanShared,
  kMeanPerHead,
  kMeanDense,
  kMeanUniform
};  // of P; kMeanUniform: uniform_map, without one
const char* const kNames[] = {"shared", "per_head", "dense", "uniform_map"};

struct MeanCase {
  MeanMap map;
  double sign;
  at::ScalarType type;
};

// What is differentiated: o, w_o, gate, lambda, and w_d, or v of uniform_map.
std::vector<Tensor> make_inputs(const MeanCase& c) {
  const int64_t all = kHeads * kWidth;
  const std::vector<int64_t> shape =
      c.map == kMeanShared    ? std::vector<int64_t>{kWidth, kWidth}
      : c.map == kMeanPerHead ? std::vector<int64_t>{kHeads, kWidth, kWidth}
      : c.map == kMeanDense   ? std::vector<int64_t>{all, all}
                              : std::vector<int64_t>{kRows, kKvHeads, kWidth};
  return {random_tensor({kRows, all}, 1, c.type), random_tensor({kHidden, all}, 2, c.type),
          random_tensor({kHeads}, 3, c.type), at::full({1}, 0.37, c.type),
          random_tensor(shape, 4, c.type)};
}

// Selected, half selected and unselected heads.
Tensor make_mask(at::ScalarType type) {
  return at::tensor({0.0, 1.0, 0.5, 0.0}, type);
}

using MeanPath = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                            const Tensor&, const Tensor&, const Tensor&, double,
                            const std::vector<int64_t>&);

std::function<Tensor(const std::vector<Tensor>&)> with(MeanPath path, const MeanCase& c) {
  return [=](const std::vector<Tensor>& in) {
    const bool uniform = c.map == kMeanUniform;
    return path(in[0], uniform ? in[4] : Tensor(), in[1], uniform ? Tensor() : in[4], in[2], in[3],
                make_mask(c.type), c.sign, kMeanBounds);
  };
}

class DexOutMeanTest : public ::testing::TestWithParam<MeanCase> {};

TEST_P(DexOutMeanTest, AgreesWithPlainOpsForwardAndGradient) {
  const MeanCase& c = GetParam();
  const double tolerance = c.type == at::kFloat ? 2e-5 : 1e-12;
  const auto in = make_inputs(c);
  expect_close(with(dex_out_mean, c)(in), with(dex_out_mean_plain, c)(in), tolerance);
  const auto found = gradients(with(dex_out_mean, c), in);
  const auto expected = gradients(with(dex_out_mean_plain, c), in);
  const char* names[] = {"o", "w_o", "gate", "lambda", "w_d or v"};
  for (size_t i = 0; i < in.size(); ++i) expect_close(found[i], expected[i], tolerance, names[i]);
}

// method.md §10 item 9.
TEST_P(DexOutMeanTest, GradientsAgreeWithFiniteDifferences) {
  const MeanCase c{GetParam().map, GetParam().sign, at::kDouble};
  const auto in = make_inputs(c);
  const auto found = gradients(with(dex_out_mean, c), in);
  for (size_t i = 0; i < in.size(); ++i) {
    expect_close(found[i], numeric_gradient(with(dex_out_mean, c), in, i), 1e-8);
  }
}

TEST_P(DexOutMeanTest, LambdaHasItsGradientWhereItIsZero) {
  const MeanCase c{GetParam().map, GetParam().sign, at::kDouble};
  auto in = make_inputs(c);
  in[3].zero_();
  const auto found = gradients(with(dex_out_mean, c), in);
  expect_close(found[3], numeric_gradient(with(dex_out_mean, c), in, 3), 1e-8);
  EXPECT_GT(found[3].abs().item<double>(), 1e-3);
  EXPECT_EQ(found[2].abs().max().item<double>(), 0);  // the gates' gradient carries the factor λ
}

// method.md §10 item 1.
TEST_P(DexOutMeanTest, NoLambdaOrNoDifferenceIsTheBaseBitForBit) {
  const MeanCase c{GetParam().map, GetParam().sign, at::kFloat};
  const auto in = make_inputs(c);
  const Tensor base = in[0].mm(in[1].t());
  auto no_lambda = in;
  no_lambda[3] = at::zeros({1});
  EXPECT_TRUE(base.equal(with(dex_out_mean, c)(no_lambda)));
  auto no_difference = in;
  no_difference[2] = at::zeros({kHeads});
  if (c.map != kMeanUniform) no_difference[4] = at::zeros_like(in[4]);
  EXPECT_TRUE(base.equal(with(dex_out_mean, c)(no_difference)));
  EXPECT_FALSE(base.equal(with(dex_out_mean, c)(in)));
}

INSTANTIATE_TEST_SUITE_P(Cases, DexOutMeanTest,
                         ::testing::Values(MeanCase{kMeanShared, 1, at::kDouble},
                                           MeanCase{kMeanPerHead, -1, at::kFloat},
                                           MeanCase{kMeanPerHead, 1, at::kDouble},
                                           MeanCase{kMeanDense, 1, at::kDouble},
                                           MeanCase{kMeanUniform, -1, at::kDouble},
                                           MeanCase{kMeanUniform, 1, at::kFloat}),
                         [](const auto& info) {
                           return std::string(kNames[info.param.map]) +
                                  (info.param.sign < 0 ? "_minus" : "_plus") +
                                  (info.param.type == at::kFloat ? "_float" : "_double");
                         });

// method.md §11.4: λ = 0.3, g = 1, sign minus; the rows of W_O are an identity.
TEST(DexOutMeanNumbersTest, UniformMap) {
  const Tensor v = at::tensor({1.0, 2.0, 3.0, -1.0, -1.0, 5.0}, at::kDouble).view({3, 1, 2});
  const Tensor o = at::tensor({1.0, 2.0, 2.0, 0.5, 0.0, 3.0}, at::kDouble).view({3, 2});
  const Tensor one = at::ones({1}, at::kDouble);
  expect_close(dex_out_mean(o, v, at::eye(2, at::kDouble), {}, one, one * 0.3, one, -1, {0, 3}),
               at::tensor({0.7, 1.4, 1.4, 0.35, -0.3, 2.4}, at::kDouble).view({3, 2}), 1e-12);
}

// prefix_mean with O of §11.4 as the rows of one head, w_d of §11.1, g = ½, by hand: O·w_d =
// (4.5, −0.5), (2, −1.875), (6, 0.75); Ō = (1, 2), (1.5, 1.25), (1, 11/6).
TEST(DexOutMeanNumbersTest, PrefixMean) {
  const Tensor o = at::tensor({1.0, 2.0, 2.0, 0.5, 0.0, 3.0}, at::kDouble).view({3, 2});
  const Tensor w_d = at::tensor({0.5, -1.0, 2.0, 0.25}, at::kDouble).view({2, 2});
  const Tensor one = at::ones({1}, at::kDouble);
  expect_close(
      dex_out_mean(o, {}, at::eye(2, at::kDouble), w_d, one * 0.5, one * 0.3, one, 1, {0, 3}),
      at::tensor({2.2, 1.55, 2.375, -0.25, 1.65, 2.95}, at::kDouble).view({3, 2}), 1e-12);
}

TEST(DexOutMeanErrorTest, NamesTheArgument) {
  const Tensor o = at::zeros({2, 8}), w_o = at::zeros({3, 8}), one = at::ones({1}),
               mask = at::ones({2}), gate = at::zeros({2});
  const auto refusal = [&](const Tensor& v, const Tensor& w_d, const Tensor& g) -> std::string {
    try {
      dex_out_mean(o, v, w_o, w_d, g, one, mask, 1, {0, 2});
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "taken";
  };
  EXPECT_EQ(refusal({}, at::zeros({4, 4}), gate), "taken");
  EXPECT_EQ(refusal({}, {}, gate),
            "[dex_out_mean] w_d must be [d, d], [H, d, d] or [H·d, H·d] with H = 2, d = 4, got "
            "undefined");
  EXPECT_EQ(refusal({}, at::zeros({4, 4}), {}), "[dex_out_mean] gate must be [H], got undefined");
  EXPECT_EQ(refusal(at::zeros({2, 3, 4}), {}, gate),
            "[dex_out_mean] v must be [N, K, d] with o's N and d, K dividing H = 2, got Float [2, "
            "3, 4]");
  EXPECT_NE(refusal(at::zeros({2, 1, 4}), at::zeros({4, 4}), gate).find("no meaning"),
            std::string::npos);
}

}  // namespace
}  // namespace dex::kernels
