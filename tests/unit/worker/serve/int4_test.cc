// Linears in four bits: the engine against the trainer's forward pass on weights that ATen's own
// operations have rounded. The engine rounds activations to eight bits as well, which the trainer
// does not, so its scores are not equal: they must lie much nearer to those of the rounded weights
// than these lie to the exact ones. Products themselves: kernels_serve/linear_int4_test.cc.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "services/base/clock.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/serve/collector.h"
#include "tests/unit/worker/serve/tiny_adapters.h"
#include "worker/model/adapter.h"
#include "worker/model/fold.h"
#include "worker/model/llama.h"
#include "worker/serve/engine.h"
#include "worker/serve/fold_command.h"

namespace dex::serve {
namespace {

at::Tensor in_eight_bits(const at::Tensor& w) {
  const at::Tensor scale = w.abs().amax(1, true) / 127;
  return (w / scale).round() * scale;
}

// Groups of 32 columns, 16 steps from their least to their largest, both ends in bf16.
at::Tensor in_four_bits(const at::Tensor& w) {
  const auto bf16 = [](const at::Tensor& t) { return t.to(at::kBFloat16).to(at::kFloat); };
  std::vector<at::Tensor> groups;
  for (const at::Tensor& group : w.split(32, 1)) {
    const at::Tensor least = bf16(group.amin(1, true));
    const at::Tensor scale = bf16((group.amax(1, true) - least) / 15);
    groups.push_back(((group - least) / scale).round().clamp(0, 15) * scale + least);
  }
  return at::cat(groups, 1);
}

model::Weights rounded(model::Weights weights) {
  for (auto& layer : weights.layers) {
    for (at::Tensor* w :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
      *w = in_four_bits(*w);
  }
  weights.lm_head = in_eight_bits(weights.lm_head);
  return weights;
}

// Replaced weights are linears like the base's; bottleneck adapters are in eight bits.
model::Adaptation rounded(model::Adaptation adaptation) {
  for (auto& layer : adaptation.layers) {
    for (at::Tensor* w : {&layer.k, &layer.v, &layer.o})
      if (w->defined()) *w = in_four_bits(*w);
    for (at::Tensor* w : {&layer.attention_adapter.down_weight, &layer.attention_adapter.up_weight,
                          &layer.mlp_adapter.down_weight, &layer.mlp_adapter.up_weight})
      if (w->defined()) *w = in_eight_bits(*w);
  }
  return adaptation;
}

// Root of the mean square.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

class Int4Test : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { use_one_library_thread(); }
  Int4Test() {
    train::testing::write_tiny_model(dir.path());
    model = load_serving_model(dir.path(), Dtype::kInt4);
    weights = model::load_weights(dir.path(), model->config, {.dtype = at::kFloat});
    for (int32_t i = 0; i < 60; ++i) ids.push_back((i * i * 7 + i * 3 + 5) % 71);
  }
  std::vector<float> scores(std::shared_ptr<const ServingAdapter> adapter = nullptr) const {
    Engine engine(model, nullptr, {.threads = 1}, clock);
    auto out = std::make_shared<testing::Collector>();
    EXPECT_TRUE(engine.submit(1, testing::scoring(ids), std::move(adapter), out).ok());
    engine.run_until_idle();
    return out->values();
  }
  std::vector<float> trained(const model::Weights& of,
                             const model::Adaptation& adaptation = {}) const {
    const at::NoGradGuard no_grad;
    const at::Tensor logits =
        model::Llama(model->config, of).logits(model::pack({{ids.begin(), ids.end()}}), adaptation);
    const at::Tensor all = at::log_softmax(logits, 1);
    std::vector<float> out;
    for (size_t i = 1; i < ids.size(); ++i)
      out.push_back(all[static_cast<int64_t>(i) - 1][ids[i]].item<float>());
    return out;
  }
  static void expect_nearer(const std::vector<float>& got, const std::vector<float>& to,
                            const std::vector<float>& than) {
    EXPECT_LT(distance(got, to), distance(to, than) / 3);
  }

  support::TemporaryDirectory dir;
  base::SystemClock clock;
  std::shared_ptr<const ServingModel> model;
  model::Weights weights;
  std::vector<int32_t> ids;
};

TEST_F(Int4Test, ScoresAreThoseOfTheRoundedWeights) {
  expect_nearer(scores(), trained(rounded(weights)), trained(weights));
}

// First folded in fp32, then rounded.
TEST_F(Int4Test, AFoldedAdapterIsRoundedAfterwards) {
  const model::Adapter adapter =
      testing::tiny_adapter(testing::tiny_options()[0], 50, model->weights_sha256);
  const model::Weights folded = model::folded_weights(weights, adapter.adaptation);
  const auto found = scores(make_serving_adapter(adapter, "a", std::string(64, 'a'), *model));
  expect_nearer(found, trained(rounded(folded)), trained(folded));
  EXPECT_NE(found, scores());
}

TEST_F(Int4Test, WhatIsNotFoldedStandsBesideTheRoundedWeights) {
  for (const int which : {testing::kPrefixMean, testing::kSilu, testing::kAllLora,
                          testing::kAttentionLora, testing::kBottleneckAdapter}) {
    SCOPED_TRACE(which);
    const auto options = testing::tiny_options().at(static_cast<size_t>(which));
    const model::Adapter adapter = testing::tiny_adapter(options, 50, model->weights_sha256);
    const auto found = scores(make_serving_adapter(adapter, "a", std::string(64, 'a'), *model));
    expect_nearer(found, trained(rounded(weights), rounded(adapter.adaptation)),
                  trained(weights, adapter.adaptation));
    EXPECT_NE(found, scores()) << "it is the base that answered";
  }
}

// The same products in both, and what is made does not depend on who else is in the batch.
TEST_F(Int4Test, DecodingSaysWhatPrefillSays) {
  Engine engine(model, nullptr, {.threads = 2}, clock);
  auto made = std::make_shared<testing::Collector>(),
       other = std::make_shared<testing::Collector>();
  const std::vector<int32_t> prompt(ids.begin(), ids.begin() + 20);
  ASSERT_TRUE(engine.submit(1, testing::greedy(prompt, 8), nullptr, made).ok());
  ASSERT_TRUE(engine.submit(2, testing::greedy({9, 8, 7}, 12), nullptr, other).ok());
  engine.run_until_idle();
  ASSERT_EQ(made->tokens.size(), 8U);
  auto alone = std::make_shared<testing::Collector>();
  ASSERT_TRUE(engine.submit(3, testing::greedy(prompt, 8), nullptr, alone).ok());
  engine.run_until_idle();
  EXPECT_EQ(alone->tokens, made->tokens);
  EXPECT_EQ(alone->values(), made->values());
  ids = prompt;
  ids.insert(ids.end(), made->tokens.begin(), made->tokens.end());
  const auto whole = scores(), decoded = made->values();
  for (size_t i = 0; i < decoded.size(); ++i)
    EXPECT_NEAR(decoded[i], whole[whole.size() - decoded.size() + i], 1e-4) << i;
}

TEST_F(Int4Test, SaysSoAndKeepsTheHeadInEight) {
  const auto eight = load_serving_model(dir.path(), Dtype::kInt8);
  EXPECT_STREQ(dtype_name(*model), "int4");
  EXPECT_STREQ(dtype_name(*eight), "int8");
  EXPECT_EQ(parse_dtype("int4"), Dtype::kInt4);
  EXPECT_EQ(model->layers[0].down.number, kernels::Number::kInt4);
  EXPECT_EQ(model->lm_head.number, kernels::Number::kInt8);
  EXPECT_EQ(model->embed.number, kernels::Number::kF32);  // as stored
}

// A checkpoint in four bits would be nobody's format.
TEST_F(Int4Test, NothingIsFoldedIntoIt) {
  std::ostringstream out;
  try {
    fold({dir.path(), dir / "adapter", "int4"}, dir / "folded", out);
    FAIL() << "it was folded";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("f32 or bf16"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace dex::serve
