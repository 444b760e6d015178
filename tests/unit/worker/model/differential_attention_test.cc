// Differential attention against fp64 values with every map written out
// (tests/data/model/make_differential.py), and the numbers of method.md §11.8.
#include "worker/model/differential_attention.h"
#include "tests/support/paths.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/unit/worker/kernels/tensors.h"
#include "worker/kernels/causal_attention.h"
#include "worker/kernels/rope.h"
#include "worker/model/dex_options.h"
#include "worker/model/safetensors.h"

namespace dex::model {
namespace {

using at::Tensor;
using testing::expect_close;

Tensor causal(const Tensor& q, const Tensor& k, const Tensor& v) {
  return kernels::causal_attention(q, k, v);
}

class DifferentialAttentionTest : public ::testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] Tensor value(const std::string& name) const {
    return golden_.tensor(GetParam() + "." + name);
  }
  [[nodiscard]] Tensor turned(const Tensor& weight) const {
    return kernels::rope_plain(value("x").mm(weight.t()).view({value("x").size(0), -1, d_}),
                               value("cos"), value("sin"));
  }
  [[nodiscard]] LambdaVectors vectors() const {
    return {value("lambda_q1"), value("lambda_k1"), value("lambda_q2"), value("lambda_k2")};
  }

  Safetensors golden_ = Safetensors::open(
      (support::source_dir() / "tests/data/model/differential.safetensors").string(),
      Safetensors::Access::kRead);
  nlohmann::json shape_ = nlohmann::json::parse(golden_.metadata().at("cases")).at(GetParam());
  int64_t heads_ = shape_[0], kv_heads_ = shape_[1], d_ = 6;
  double init_ = lambda_init(shape_[2]);
  DifferentialProjections hf_ = from_unilm({value("q"), value("k"), value("v"), value("o")},
                                           value("gain"), heads_, kv_heads_);
  Tensor q_ = turned(hf_.q), k_ = turned(hf_.k),
         v_ = value("x").mm(hf_.v.t()).view({value("x").size(0), 2 * kv_heads_, d_});
  WideValues wide_{v_.narrow(1, 0, kv_heads_), v_.narrow(1, kv_heads_, kv_heads_)};
};

// A layer in unilm's layout, converted, gives unilm's (flash) result; the naive file's pairing is
// another one as soon as heads share keys (method.md §8.2).
TEST_P(DifferentialAttentionTest, AUnilmLayerGivesItsOwnResult) {
  expect_close(differential_lambda(vectors(), init_), value("lambda"), 1e-12);
  const Tensor o =
      differential_v1(q_, k_, wide_, {differential_lambda(vectors(), init_), init_}, causal);
  ASSERT_EQ(o.sizes(), (at::IntArrayRef{value("x").size(0), heads_, 2 * d_}));
  const Tensor y = o.flatten(1).mm(hf_.o.t());
  expect_close(y, value("y"), 1e-10);
  const double naive = (y - value("naive")).abs().max().item<double>();
  if (heads_ == kv_heads_) {
    EXPECT_LT(naive, 1e-10);
  } else {
    EXPECT_GT(naive, 1e-2);
  }
}

// The norm's gain where a caller has one, without folding it.
TEST_P(DifferentialAttentionTest, TheGainMayStay) {
  const Tensor lambda = differential_lambda(vectors(), init_);
  const Tensor o = differential_v1(q_, k_, wide_, {lambda, init_, 1e-5, value("gain")}, causal);
  expect_close(o.flatten(1).mm(value("o").t()), value("y"), 1e-10);
}

// Two attention calls on values 2d wide, where the halved values take four.
TEST_P(DifferentialAttentionTest, TwoCallsAreFourCalls) {
  const Tensor lambda = differential_lambda(vectors(), init_);
  const auto batched = [](const Tensor& x) { return x.transpose(0, 1).unsqueeze(0); };
  const auto map_of = [&](int64_t p) {
    return at::scaled_dot_product_attention(batched(q_.narrow(1, p * heads_, heads_)),
                                            batched(k_.narrow(1, p * kv_heads_, kv_heads_)),
                                            batched(at::cat({wide_.low, wide_.high}, -1)),
                                            std::nullopt, 0.0, true, std::nullopt,
                                            /*enable_gqa=*/true)
        .squeeze(0)
        .transpose(0, 1);
  };
  const Tensor o = map_of(0) - lambda * map_of(1);
  const Tensor want = o * at::rsqrt(o.pow(2).mean(-1, true) + 1e-5) * (1 - init_);
  expect_close(differential_v1(q_, k_, wide_, {lambda, init_}, causal), want, 1e-12);
}

// With values e_t and an eps that drowns the norm, a row of the result is a row of the map.
TEST_P(DifferentialAttentionTest, RowsOfTheMapSumToOneMinusLambda) {
  const double lambda = 0.37, eps = 1e16;
  const int64_t rows = q_.size(0);
  const Tensor one_hot =
      at::eye(rows, 2 * d_, at::kDouble).unsqueeze(1).expand({rows, kv_heads_, 2 * d_});
  const Tensor map = differential_v1(q_, k_, {one_hot.slice(-1, 0, d_), one_hot.slice(-1, d_)},
                                     {at::full({}, lambda, at::kDouble), init_, eps}, causal) *
                     (std::sqrt(eps) / (1 - init_));
  expect_close(map.sum(-1), at::full({rows, heads_}, 1 - lambda, at::kDouble), 1e-10);
  EXPECT_GT(map.min().item<double>(), -lambda);
  EXPECT_LT(map.max().item<double>(), 1);
}

TEST_P(DifferentialAttentionTest, GradientsAreThoseOfFiniteDifferences) {
  const auto op = [&](const std::vector<Tensor>& in) {
    return differential_v1(in[0], in[1], {in[2], in[3]},
                           {differential_lambda({in[4], in[5], in[6], in[7]}, init_), init_},
                           causal);
  };
  const std::vector<Tensor> inputs{q_,
                                   k_,
                                   wide_.low,
                                   wide_.high,
                                   value("lambda_q1"),
                                   value("lambda_k1"),
                                   value("lambda_q2"),
                                   value("lambda_k2")};
  const auto found = testing::gradients(op, inputs);
  for (size_t i = 0; i < inputs.size(); ++i)
    expect_close(found[i], testing::numeric_gradient(op, inputs, i), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Cases, DifferentialAttentionTest, ::testing::Values("v1", "v1_gqa"),
                         [](const auto& info) { return info.param; });

TEST(DifferentialV2Test, SubtractsByTheTokensOwnShare) {
  const Safetensors golden = Safetensors::open(
      (support::source_dir() / "tests/data/model/differential.safetensors").string(),
      Safetensors::Access::kRead);
  const Tensor x = golden.tensor("v2.x");
  const auto project = [&](const char* name) {
    return x.mm(golden.tensor(std::string("v2.") + name).t());
  };
  const auto turned = [&](const char* name) {
    return kernels::rope_plain(project(name).view({x.size(0), -1, 6}), golden.tensor("v2.cos"),
                               golden.tensor("v2.sin"));
  };
  const Tensor q = turned("q"), k = turned("k"), v = project("v").view({x.size(0), -1, 6}),
               logits = project("w_lambda");
  const auto op = [&](const std::vector<Tensor>& in) {
    return differential_v2(in[0], in[1], in[2], in[3], causal);
  };
  const std::vector<Tensor> inputs{q, k, v, logits};
  expect_close(op(inputs).flatten(1).mm(golden.tensor("v2.o").t()), golden.tensor("v2.y"), 1e-10);
  const auto found = testing::gradients(op, inputs);
  for (size_t i = 0; i < inputs.size(); ++i)
    expect_close(found[i], testing::numeric_gradient(op, inputs, i), 1e-6);
}

TEST(DifferentialLambdaTest, WorkedNumbers) {  // method.md §11.8
  const LambdaVectors vectors{at::tensor({0.1, -0.2}), at::tensor({0.3, 0.1}),
                              at::tensor({-0.1, 0.2}), at::tensor({0.2, 0.4})};
  EXPECT_NEAR(differential_lambda(vectors, lambda_init(0)).item<double>(), 0.148214, 1e-6);
  EXPECT_NEAR(differential_lambda(vectors, lambda_init(3)).item<double>(), 0.504272, 1e-6);
}

TEST(FromUnilmTest, RefusesShapesThatDontFit) {
  const Tensor q = at::ones({24, 5}), kv = at::ones({12, 5}), o = at::ones({5, 24});
  EXPECT_NO_THROW(from_unilm({q, kv, kv, o}, at::ones({12}), 2, 1));
  EXPECT_THROW(from_unilm({q, kv, kv, o}, at::ones({12}), 4, 1), std::runtime_error);
  EXPECT_THROW(from_unilm({q, kv, q, o}, at::ones({12}), 2, 1), std::runtime_error);
  EXPECT_THROW(from_unilm({q, kv, kv, q}, at::ones({12}), 2, 1), std::runtime_error);
}

}  // namespace
}  // namespace dex::model
