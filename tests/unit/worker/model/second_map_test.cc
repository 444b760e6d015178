// Method diff's conversion (method.md §8.4) on models of several families. What a second map
// computes is checked against the base's own forward pass, in the cases where that can say it.
#include "worker/model/second_map.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/kernels/tensors.h"
#include "tests/unit/worker/model/golden.h"
#include "tests/unit/worker/model/second_map_models.h"
#include "worker/model/adapter.h"
#include "worker/model/differential_attention.h"
#include "worker/model/fold.h"
#include "worker/model/llama.h"

namespace dex::model {
namespace {

using at::Tensor;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using enum SecondMapOptions::Version;
using enum SecondMapOptions::Init;

double logit_difference(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item<double>();
}

class SecondMapTest : public ::testing::TestWithParam<testing::SecondMapCase> {
 protected:
  SecondMapTest() : base(dir / "base") {
    testing::write_family(base, GetParam().family, testing::family_tensors(golden));
    config = load_config(base);
    weights = load_weights(base, config, {at::kFloat});
  }

  // Logits of the converted model at `mix`, at its start.
  Tensor converted(SecondMapOptions::Init init, double mix) const {
    Adaptation adaptation;
    adaptation.mix = mix;
    const Config changed = with_second_map(config, version());
    const Weights start = add_second_map(weights, config, {version(), init}, 3);
    return Llama(changed, start).logits(batch, adaptation);
  }
  // Logits of the base with each W_O times a number.
  Tensor scaled(const std::vector<double>& factors) const {
    Weights changed = weights;
    for (size_t i = 0; i < changed.layers.size(); ++i)
      changed.layers[i].o = changed.layers[i].o * factors[i];
    return Llama(config, changed).logits(batch);
  }
  // mix times λ of V2 (½) or V1 at the start, a layer.
  std::vector<double> shares(double mix) const {
    std::vector<double> out;
    const Weights start = add_second_map(weights, config, {version(), kMirror}, 3);
    for (size_t i = 0; i < start.layers.size(); ++i) {
      const LayerWeights& w = start.layers[i];
      const double lambda =
          version() == kV2
              ? 0.5
              : differential_lambda({w.lambda_q1, w.lambda_k1, w.lambda_q2, w.lambda_k2},
                                    lambda_init(static_cast<int64_t>(i)))
                    .item<double>();
      out.push_back(mix * lambda);
    }
    return out;
  }
  static SecondMapOptions::Version version() { return GetParam().version; }

  support::TemporaryDirectory dir;
  std::filesystem::path base;
  Safetensors golden = testing::family_golden(GetParam().family);
  Config config;
  Weights weights;
  Batch batch = pack(testing::documents_of(golden));
};

TEST_P(SecondMapTest, WithoutMixItIsThePretrainedModel) {
  for (const auto init : {kZero, kMirror})
    EXPECT_LT(logit_difference(converted(init, 0), golden.tensor("logits")), 1e-4);
}

// The second map is the first: O shrinks to (1 − mix·λ)·O.
TEST_P(SecondMapTest, AMirrorShrinksTheOutput) {
  for (const double mix : {0.3, 1.0}) {
    std::vector<double> factors = shares(mix);
    for (double& factor : factors) factor = 1 - factor;
    const Tensor want = scaled(factors);
    EXPECT_LT(logit_difference(converted(kMirror, mix), want), 1e-4) << mix;
    EXPECT_GT(logit_difference(want, golden.tensor("logits")), 1e-2) << mix;
  }
}

TEST_P(SecondMapTest, GradientsReachEveryTensorOfAttention) {
  const auto made = testing::second_map_model(base, GetParam());
  DexOptions options;
  options.form = Form::kNone;
  options.train = Train::kDiffAttention;
  options.second_map = {version(), kMirror, 10};
  Adaptation adaptation = initial_adaptation(options, made.config, made.weights, {}, 1);
  EXPECT_EQ(adaptation.mix, 0);
  set_lambda(adaptation, 4);
  EXPECT_DOUBLE_EQ(adaptation.mix, 0.4);
  for (const Trainable& entry : trainables(adaptation)) entry.tensor->requires_grad_();
  const Llama llama(made.config, made.weights);
  testing::next_token_loss(llama, batch, adaptation).backward();
  for (const Trainable& entry : trainables(adaptation)) {
    EXPECT_THAT(entry.name, HasSubstr(".self_attn."));
    EXPECT_GT(entry.tensor->grad().abs().max().item<double>(), 1e-7) << entry.name;
  }
}

TEST_P(SecondMapTest, LaterTokensChangeNothingBeforeAndDocumentsDontMeet) {
  const auto made = testing::second_map_model(base, GetParam());
  const Llama llama(made.config, made.weights);
  const auto documents = testing::documents_of(golden);
  auto changed = documents;
  for (size_t t = 12; t < changed[0].size(); ++t)
    changed[0][t] = (changed[0][t] + 1) % config.vocab_size;
  const Tensor was = llama.logits(pack(documents)), is = llama.logits(pack(changed));
  const auto end = static_cast<int64_t>(documents[0].size());
  EXPECT_LT(logit_difference(is.slice(0, 0, 12), was.slice(0, 0, 12)), 1e-5);
  EXPECT_GT(logit_difference(is.slice(0, 12, end), was.slice(0, 12, end)), 1e-2);
  EXPECT_LT(logit_difference(is.slice(0, end), was.slice(0, end)), 1e-5);
}

TEST_P(SecondMapTest, ACheckpointReadsBackAndCountsItself) {
  auto made = testing::second_map_model(base, GetParam());
  Adapter adapter;
  adapter.adaptation.options.form = Form::kNone;
  adapter.adaptation.options.train = Train::kDiffAttention;
  adapter.adaptation.options.second_map = {version(), kMirror};
  adapter.base_weights_sha256 = base_weights_sha256(base);
  write_checkpoint(dir / "out", base, made.weights, adapter);
  const Config read = load_config(dir / "out");
  EXPECT_EQ(read.attention, made.config.attention);
  const Weights stored = load_weights(dir / "out", read, {at::kFloat});
  EXPECT_EQ(logit_difference(Llama(read, stored).logits(batch),
                             Llama(made.config, made.weights).logits(batch)),
            0);
  int64_t numbers = 0;
  for (const auto& [name, tensor] : named_weights(stored)) numbers += tensor.numel();
  EXPECT_EQ(read.parameter_count(), numbers);

  adapter.adaptation.mix = 0.4;
  EXPECT_THAT([&] { write_checkpoint(dir / "early", base, made.weights, adapter); },
              ThrowsMessage<std::runtime_error>(HasSubstr("mix is 0.4")));
  EXPECT_FALSE(std::filesystem::exists(dir / "early"));
}

TEST_P(SecondMapTest, IsTrainedFurtherAsAnyModel) {
  const auto made = testing::second_map_model(base, GetParam());
  testing::write_second_map(base, dir / "out", GetParam(), made);
  for (const Train train : {Train::kKvoOnly, Train::kLora}) {
    DexOptions options;
    options.form = Form::kNone;
    options.train = train;
    Adaptation adaptation = initial_adaptation(options, made.config, made.weights, {}, 1);
    testing::move_all(adaptation, 0.1);
    Adapter adapter = make_adapter(adaptation);
    adapter.base_weights_sha256 = base_weights_sha256(dir / "out");
    const auto folder = dir / std::string(name(train));
    write_adapter(folder, adapter);
    const Adapter read = load_adapter(folder, {made.config, adapter.base_weights_sha256});
    const Llama llama(made.config, made.weights);
    const Tensor want = llama.logits(batch, adaptation);
    EXPECT_LT(logit_difference(llama.logits(batch, read.adaptation), want), 1e-5) << folder;
    const Weights folded = folded_weights(made.weights, adaptation);
    EXPECT_LT(logit_difference(Llama(made.config, folded).logits(batch), want), 1e-4) << folder;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, SecondMapTest, ::testing::ValuesIn(testing::second_map_cases()),
                         [](const auto& info) { return info.param.name(); });

// With W_Q2 = 0 the second map is the mean over the past, which form uniform_map computes too, with
// λ·g in the place of mix·½.
TEST(SecondMapStartTest, ZeroSubtractsTheMeanOfThePast) {
  for (const char* family : {"llama3", "llama_linear", "qwen2"}) {
    support::TemporaryDirectory dir;
    const Safetensors golden = testing::family_golden(family);
    testing::write_family(dir / "base", family, testing::family_tensors(golden));
    const Config config = load_config(dir / "base");
    const Weights weights = load_weights(dir / "base", config, {at::kFloat});
    const Batch batch = pack(testing::documents_of(golden));
    DexOptions options;
    options.form = Form::kUniformMap;
    options.lambda = {.schedule = Schedule::kConstant, .value = 0.4};
    std::vector<int64_t> all;
    for (int64_t head = 0; head < config.heads; ++head) all.push_back(head);
    Adaptation uniform = initial_adaptation(
        options, config, weights,
        std::vector<std::vector<int64_t>>(static_cast<size_t>(config.layers), all), 1);
    for (LayerAdaptation& layer : uniform.layers) layer.branch.gate = at::ones({config.heads});
    Adaptation mixed;
    mixed.mix = 0.8;
    const Config changed = with_second_map(config, kV2);
    const Weights start = add_second_map(weights, config, {kV2, kZero}, 3);
    EXPECT_LT(logit_difference(Llama(changed, start).logits(batch, mixed),
                               Llama(config, weights).logits(batch, uniform)),
              1e-4)
        << family;
  }
}

TEST(SecondMapStartTest, LambdaVectorsAreNormalAndOfTheSeed) {
  Config config;
  config.hidden_size = 4;
  config.heads = config.kv_heads = config.layers = 1;
  config.head_dim = 4096;
  Weights base;
  base.layers.resize(1);
  base.layers[0].q = base.layers[0].k = at::zeros({4096, 4});
  const auto made = [&](uint64_t seed) {
    return add_second_map(base, config, {kV1, kZero}, seed).layers[0];
  };
  const LayerWeights first = made(5);
  for (const Tensor& vector :
       {first.lambda_q1, first.lambda_k1, first.lambda_q2, first.lambda_k2}) {
    EXPECT_NEAR(vector.mean().item<double>(), 0, 0.006);
    EXPECT_NEAR(vector.std().item<double>(), 0.1, 0.005);
  }
  EXPECT_FALSE(first.lambda_q1.equal(first.lambda_k1));
  EXPECT_TRUE(first.lambda_q1.equal(made(5).lambda_q1));
  EXPECT_FALSE(first.lambda_q1.equal(made(6).lambda_q1));
}

TEST(SecondMapStartTest, SaysWhatCantBeConverted) {
  Config config;
  config.model_type = "qwen3";
  EXPECT_EQ(second_map_problem({}, config), "");
  config.qk_norm = true;
  EXPECT_EQ(
      second_map_problem({}, config),
      "init ZERO has no usable gradient on a qwen3, which norms its queries: take init MIRROR");
  EXPECT_EQ(second_map_problem({kV2, kMirror}, config), "");
  EXPECT_THAT(second_map_problem({kV2, kMirror}, with_second_map(config, kV1)),
              HasSubstr("model_type qwen3 with differential_attention V1 subtracts attention maps "
                        "already"));
}

TEST(MixTest, RisesToOneAndStays) {
  const SecondMapOptions options{kV2, kZero, 0.3 * 20};
  EXPECT_EQ(mix_at(options, 0), 0);
  EXPECT_DOUBLE_EQ(mix_at(options, 3), 0.5);
  EXPECT_EQ(mix_at(options, 6), 1);
  EXPECT_EQ(mix_at(options, 20), 1);
}

}  // namespace
}  // namespace dex::model
