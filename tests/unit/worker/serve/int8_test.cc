// Weights in eight bits: the engine against the trainer's forward pass on weights that ATen's own
// operations have rounded (method.md §8.5).
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "services/base/clock.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/model/golden.h"
#include "tests/unit/worker/model/second_map_models.h"
#include "tests/unit/worker/serve/collector.h"
#include "tests/unit/worker/serve/tiny_adapters.h"
#include "worker/model/adapter.h"
#include "worker/model/fold.h"
#include "worker/model/llama.h"
#include "worker/serve/engine.h"
#include "worker/serve/engine_subject.h"
#include "worker/serve/fold_command.h"

namespace dex::serve {
namespace {

// What int8 makes of a Linear weight: a scale a row, whole multiples of it.
at::Tensor rounded(const at::Tensor& w) {
  if (!w.defined()) return w;
  const at::Tensor scale = w.abs().amax(1, true) / 127;
  return (w / scale).round() * scale;
}

model::Weights rounded(model::Weights weights) {
  for (auto& layer : weights.layers) {
    for (at::Tensor* w :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
      *w = rounded(*w);
  }
  weights.lm_head = rounded(weights.lm_head);
  return weights;
}

// The largest |x| behind a layer, and the largest |q·k/√d| that a row sees, by ATen's operations.
ActivationExtremes extremes_of(const model::Config& config, const model::Weights& weights,
                               const model::Adaptation& adaptation,
                               const std::vector<int32_t>& ids) {
  const at::NoGradGuard no_grad;
  ActivationExtremes out;
  model::Observer observer;
  observer.on_heads = [&](int64_t, const at::Tensor& q, const at::Tensor& k, const at::Tensor&) {
    const at::Tensor keys = k.repeat_interleave(q.size(1) / k.size(1), 1);
    const at::Tensor logits = at::matmul(q.transpose(0, 1), keys.permute({1, 2, 0})) /
                              std::sqrt(static_cast<double>(q.size(2)));
    out.attention_logit = std::max(out.attention_logit, logits.tril().abs().max().item<double>());
  };
  const model::Llama llama(config, weights);
  const model::Batch batch = model::pack({{ids.begin(), ids.end()}});
  at::Tensor x = llama.embedded(batch, adaptation);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    x = llama.block(layer, x, batch, adaptation, observer);
    out.hidden = std::max(out.hidden, x.abs().max().item<double>());
  }
  out.tokens = static_cast<int64_t>(ids.size());
  return out;
}

// Replaced weights and bottleneck adapters are linears like the base's; LoRA's factors and a branch
// that is not folded stay as they are.
model::Adaptation rounded(model::Adaptation adaptation) {
  for (auto& layer : adaptation.layers) {
    for (at::Tensor* w : {&layer.k, &layer.v, &layer.o, &layer.attention_adapter.down_weight,
                          &layer.attention_adapter.up_weight, &layer.mlp_adapter.down_weight,
                          &layer.mlp_adapter.up_weight})
      *w = rounded(*w);
  }
  return adaptation;
}

using AdapterInUse = std::shared_ptr<const ServingAdapter>;

AdapterInUse served(const model::Adapter& adapter, const ServingModel& model) {
  return make_serving_adapter(adapter, "a", std::string(64, 'a'), model);
}

std::vector<float> scores_by(const std::shared_ptr<const ServingModel>& model,
                             const std::vector<int32_t>& ids, AdapterInUse adapter = nullptr) {
  base::SystemClock clock;
  Engine engine(model, nullptr, {.threads = 1}, clock);
  auto out = std::make_shared<testing::Collector>();
  EXPECT_TRUE(engine.submit(1, testing::scoring(ids), std::move(adapter), out).ok());
  engine.run_until_idle();
  return out->values();
}

// Log-probabilities of ids[1 …] by the trainer's forward pass.
void expect_scores_by(const model::Llama& llama, const model::Adaptation& adaptation,
                      const std::vector<int32_t>& ids, const std::vector<float>& got) {
  const at::NoGradGuard no_grad;
  const at::Tensor logits = llama.logits(model::pack({{ids.begin(), ids.end()}}), adaptation);
  const at::Tensor want = at::log_softmax(logits.to(at::kDouble), 1);
  ASSERT_EQ(got.size() + 1, ids.size());
  for (size_t i = 1; i < ids.size(); ++i) {
    EXPECT_NEAR(got[i - 1], want[static_cast<int64_t>(i) - 1][ids[i]].item<double>(), 2e-4)
        << "token " << i;
  }
}

class Int8Test : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { use_one_library_thread(); }
  Int8Test() {
    train::testing::write_tiny_model(dir.path());
    model = load_serving_model(dir.path(), Dtype::kInt8);
    weights = model::load_weights(dir.path(), model->config, {.dtype = at::kFloat});
  }
  std::vector<float> scores(AdapterInUse adapter = nullptr) const {
    return scores_by(model, ids, std::move(adapter));
  }
  void expect_scores_of(const model::Weights& of, const model::Adaptation& adaptation,
                        const std::vector<float>& got) const {
    expect_scores_by(model::Llama(model->config, of), adaptation, ids, got);
  }

  support::TemporaryDirectory dir;
  base::SystemClock clock;
  std::shared_ptr<const ServingModel> model;
  model::Weights weights;
  const std::vector<int32_t> ids = {5, 28, 3, 61, 17, 90, 44, 8, 8, 71, 2, 33, 19, 56, 77, 12, 25};
};

TEST_F(Int8Test, ScoresAreThoseOfTheRoundedWeights) {
  expect_scores_of(rounded(weights), {}, scores());
  // It is a rounding that shows: the weights as they were score otherwise.
  EXPECT_NE(scores_by(load_serving_model(dir.path(), Dtype::kF32), ids), scores());
}

// method.md §8.5: beside what eight bits cost, for the base and an adapter.
TEST_F(Int8Test, TheLargestActivationsAreThoseOfTheForwardPass) {
  const model::Adapter adapter =
      testing::tiny_adapter(testing::tiny_options()[0], 50, model->weights_sha256);
  const model::Weights folded = model::folded_weights(weights, adapter.adaptation);
  const auto exact = load_serving_model(dir.path(), Dtype::kF32);
  const auto found = [&](const std::shared_ptr<const ServingModel>& of, bool with_adapter) {
    Engine engine(of, nullptr, {.threads = 1}, clock);
    TextModel text;
    const auto serving =
        with_adapter ? make_serving_adapter(adapter, "a", std::string(64, 'a'), *of) : nullptr;
    // Another subject of the same engine, whose answers are not counted.
    EngineSubject unwatched(engine, text, nullptr, "other", 256);
    EngineSubject subject(engine, text, serving, "subject", 256);
    subject.keep_extremes();
    const std::vector<evaluate::Subject::Scoring> items = {{ids, 1}};
    const std::vector<evaluate::Subject::Scoring> other = {{{90, 44, 8, 1, 2, 3, 4, 5}, 1}};
    unwatched.score(other, {});
    subject.score(items, {});
    unwatched.score(other, {});
    return *subject.extremes();
  };
  const auto expect_near = [](const ActivationExtremes& got, const ActivationExtremes& want) {
    EXPECT_NEAR(got.hidden, want.hidden, 2e-4 * want.hidden);
    EXPECT_NEAR(got.attention_logit, want.attention_logit, 2e-4 * want.attention_logit);
    EXPECT_EQ(got.tokens, want.tokens);
  };
  expect_near(found(exact, false), extremes_of(exact->config, weights, {}, ids));
  expect_near(found(exact, true), extremes_of(exact->config, folded, {}, ids));
  expect_near(found(model, false), extremes_of(model->config, rounded(weights), {}, ids));
  expect_near(found(model, true), extremes_of(model->config, rounded(folded), {}, ids));
  EXPECT_NE(found(exact, false).hidden, found(exact, true).hidden);
  EXPECT_NE(found(exact, false).attention_logit, found(model, false).attention_logit);
}

// First folded in fp32, then rounded.
TEST_F(Int8Test, AFoldedAdapterIsRoundedAfterwards) {
  const model::Adapter adapter =
      testing::tiny_adapter(testing::tiny_options()[0], 50, model->weights_sha256);
  ASSERT_TRUE(model::not_foldable(adapter.adaptation.options).empty());
  expect_scores_of(rounded(model::folded_weights(weights, adapter.adaptation)), {},
                   scores(served(adapter, *model)));
}

// Sums of the past, activated bottlenecks, LoRA and bottleneck adapters: beside an int8 base.
TEST_F(Int8Test, WhatIsNotFoldedStandsBesideTheRoundedWeights) {
  for (const int which : {testing::kPrefixMean, testing::kUniformMap, testing::kSilu,
                          testing::kDexOnlyGelu, testing::kLoraPrefix, testing::kAllLora,
                          testing::kAttentionLora, testing::kBottleneckAdapter}) {
    SCOPED_TRACE(which);
    const auto options = testing::tiny_options().at(static_cast<size_t>(which));
    const model::Adapter adapter = testing::tiny_adapter(options, 50, model->weights_sha256);
    const auto found = scores(served(adapter, *model));
    expect_scores_of(rounded(weights), rounded(adapter.adaptation), found);
    EXPECT_NE(found, scores()) << "it is the base that answered";
  }
}

TEST_F(Int8Test, DecodingReadsTheSameWeightsAsPrefill) {
  Engine engine(model, nullptr, {.threads = 1}, clock);
  auto made = std::make_shared<testing::Collector>();
  EXPECT_TRUE(engine.submit(1, testing::greedy(ids, 8), nullptr, made).ok());
  engine.run_until_idle();
  ASSERT_EQ(made->tokens.size(), 8U);
  // What was made token by token scores as a whole prompt does.
  const at::NoGradGuard no_grad;
  std::vector<int64_t> all(ids.begin(), ids.end());
  for (const int32_t token : made->tokens) {
    const at::Tensor logits =
        model::Llama(model->config, rounded(weights)).logits(model::pack({all}));
    EXPECT_EQ(logits[-1].argmax().item<int64_t>(), token);
    all.push_back(token);
  }
}

// A checkpoint in eight bits would be nobody's format.
TEST_F(Int8Test, NothingIsFoldedIntoIt) {
  std::ostringstream out;
  try {
    fold({dir.path(), dir / "adapter", "int8"}, dir / "folded", out);
    FAIL() << "it was folded";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("f32 or bf16"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "folded"));
}

TEST_F(Int8Test, TakesLessThanFp32AndSaysSo) {
  const auto exact = load_serving_model(dir.path(), Dtype::kF32);
  EXPECT_STREQ(dtype_name(*model), "int8");
  EXPECT_STREQ(dtype_name(*exact), "f32");
  EXPECT_EQ(model->layers[0].q.number, kernels::Number::kInt8);
  EXPECT_EQ(model->lm_head.number, kernels::Number::kInt8);
  EXPECT_EQ(model->embed.number, kernels::Number::kF32);  // as stored
  EXPECT_EQ(parse_dtype("int8"), Dtype::kInt8);
  EXPECT_LT(model->bytes, exact->bytes);
}

// Models that subtract maps: λ, and W_λ of V2, stay as stored.
class Int8DifferentialTest : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() { use_one_library_thread(); }

  // "diffllama", or a family and the version of its second map: "llama3_V1".
  void write(const std::filesystem::path& folder) const {
    const auto second = dex::testing::second_map_cases();
    const auto found =
        std::ranges::find_if(second, [](const auto& each) { return each.name() == GetParam(); });
    const std::string family = found == second.end() ? GetParam() : found->family;
    const auto tensors = dex::testing::family_tensors(dex::testing::family_golden(family));
    if (found == second.end()) return dex::testing::write_family(folder, family, tensors);
    dex::testing::write_family(dir / "base", family, tensors);
    dex::testing::write_second_map(dir / "base", folder, *found,
                                   dex::testing::second_map_model(dir / "base", *found));
  }

  support::TemporaryDirectory dir;
};

TEST_P(Int8DifferentialTest, ScoresAreThoseOfTheRoundedWeights) {
  write(dir / "model");
  const auto model = load_serving_model(dir / "model", Dtype::kInt8);
  const auto weights = model::load_weights(dir / "model", model->config, {.dtype = at::kFloat});
  const auto eight_bits = rounded(weights);
  const model::Llama llama(model->config, eight_bits);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 29; ++i) ids.push_back((i * i * 7 + i * 3 + 5) % 71);
  const auto of_base = scores_by(model, ids);
  expect_scores_by(llama, {}, ids, of_base);
  EXPECT_NE(scores_by(load_serving_model(dir / "model", Dtype::kF32), ids), of_base);
  for (const int which : {testing::kAllLora, testing::kBottleneckAdapter}) {
    auto adaptation = model::initial_adaptation(
        testing::tiny_options().at(static_cast<size_t>(which)), model->config, weights, {}, 9);
    dex::testing::move_all(adaptation, 0.2);
    const auto adapted = scores_by(model, ids, served(model::make_adapter(adaptation), *model));
    expect_scores_by(llama, rounded(adaptation), ids, adapted);
    EXPECT_NE(adapted, of_base);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Int8DifferentialTest,
                         ::testing::Values("diffllama", "diffllama_biased", "llama3_V1",
                                           "qwen2_V2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace dex::serve
