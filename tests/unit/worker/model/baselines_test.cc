// LoRA, bottleneck adapters and full fine-tuning (method.md §7), alone and with a branch: starts,
// gradients, folding, and which tensors are trained.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/model/models.h"
#include "worker/kernels/linear_cross_entropy.h"
#include "worker/model/fold.h"
#include "worker/model/llama.h"

namespace dex::model {
namespace {

using testing::expect_close;
using testing::moved_adaptation;

const std::vector<int64_t> kFirst{3, 14, 15, 9, 26, 5, 35, 8}, kSecond{57, 1, 42, 11, 30};

DexOptions options_for(Train train) {
  DexOptions options;
  options.train = train;
  options.form = parts_of(train).branch ? Form::kPaper : Form::kNone;
  options.lambda.anneal_steps = 50;
  options.lora = {.r = 3, .alpha = 5, .targets = {kLinears.begin(), kLinears.end()}};
  options.adapter = {.size = 4, .activation = AdapterActivation::kGelu};
  return options;
}

class BaselineTest : public ::testing::TestWithParam<Train> {
 protected:
  Config config = testing::tiny_config();
  DexOptions options = options_for(GetParam());
};

// method.md §10 items 1 and 16.
TEST_P(BaselineTest, TheStartIsTheBaseBitForBit) {
  const Weights weights = testing::tiny_weights(config);
  const Llama llama(config, weights);
  const Batch batch = pack({kFirst, kSecond});
  const Adaptation start =
      initial_adaptation(options, config, weights, testing::some_heads(config), 1);
  EXPECT_TRUE(llama.logits(batch).equal(llama.logits(batch, start)));
}

TEST_P(BaselineTest, GradientsAgreeWithFiniteDifferences) {
  const Weights weights = testing::tiny_weights(config, at::kDouble);
  const Llama llama(config, weights);
  Batch batch = pack({kFirst, kSecond});
  batch.noise = Noise{4, 9};
  const at::Tensor targets = batch.tokens.roll(-1), rows = at::full({13}, 1.0 / 13, at::kDouble);
  options.lora.dropout = 0.2;
  Adaptation adapted = moved_adaptation(options, config, weights);
  for (LayerAdaptation& layer : adapted.layers) {
    if (layer.mask.defined()) layer.mask = layer.mask.to(at::kDouble);
  }
  for (const auto& entry : trainables(adapted)) {
    *entry.tensor = entry.tensor->to(at::kDouble).detach().requires_grad_();
  }
  kernels::LinearCrossEntropy op;
  const auto loss = [&] {
    return op.loss(llama.hidden(batch, adapted), llama.lm_head(adapted), targets, rows);
  };
  loss().backward();
  at::NoGradGuard no_grad;
  for (const auto& entry : trainables(adapted)) {
    const at::Tensor flat = entry.tensor->view({-1});
    ASSERT_TRUE(entry.tensor->grad().defined() || entry.group == Group::kBranch ||
                entry.group == Group::kLambda)
        << entry.name;
    for (int64_t i = 0; i < flat.size(0); i += 1 + flat.size(0) / 2) {
      const double was = flat[i].item<double>();
      const auto at_value = [&](double value) {
        flat[i].fill_(value);
        return loss().item<double>();
      };
      const double numeric = (at_value(was + 1e-5) - at_value(was - 1e-5)) / 2e-5;
      flat[i].fill_(was);
      const double found =
          entry.tensor->grad().defined() ? entry.tensor->grad().view({-1})[i].item<double>() : 0.0;
      EXPECT_NEAR(found, numeric, 1e-8 + 1e-6 * std::abs(numeric)) << entry.name;
    }
  }
}

TEST_P(BaselineTest, NothingElseHasAGradientAndTheBaseIsNeverWritten) {
  const Weights weights = testing::tiny_weights(config);
  std::vector<at::Tensor> before;
  for (const auto& [name, tensor] : named_weights(weights)) before.push_back(tensor.clone());
  Adaptation adapted = moved_adaptation(options, config, weights);
  for (const auto& entry : trainables(adapted)) entry.tensor->requires_grad_();
  Llama(config, weights).logits(pack({kFirst, kSecond}), adapted).pow(2).sum().backward();
  size_t i = 0;
  for (const auto& [name, tensor] : named_weights(weights)) {
    EXPECT_FALSE(tensor.grad().defined()) << name;
    EXPECT_TRUE(tensor.equal(before[i++])) << name;
  }
}

// method.md §2.4's bounds hold for what LoRA merges as well; an adapter says that it can't be
// folded.
TEST_P(BaselineTest, FoldedIsUnfolded) {
  const Batch batch = pack({kFirst, kSecond});
  for (const auto type : {at::kDouble, at::kFloat}) {
    const Weights base = testing::tiny_weights(config, type);
    Adaptation adapted = moved_adaptation(options, config, base);
    for (const auto& entry : trainables(adapted)) *entry.tensor = entry.tensor->to(type);
    for (LayerAdaptation& layer : adapted.layers) {
      if (layer.mask.defined()) layer.mask = layer.mask.to(type);
    }
    if (options.has_adapter()) {
      EXPECT_THAT([&] { folded_weights(base, adapted); },
                  ::testing::ThrowsMessage<std::runtime_error>(
                      ::testing::HasSubstr("can't be folded, serve it as an adapter")));
      continue;
    }
    const Weights folded = folded_weights(base, adapted);
    EXPECT_TRUE(folded.lm_head.is_same(folded.embed));
    const Certificate c = certificate(Llama(config, folded).logits(batch),
                                      Llama(config, base).logits(batch, adapted));
    EXPECT_LE(c.largest, type == at::kDouble ? 1e-10 : 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Trains, BaselineTest,
                         ::testing::Values(Train::kLora, Train::kAdapter, Train::kFull,
                                           Train::kLoraDex, Train::kFullDex),
                         [](const auto& info) {
                           std::string text(name(info.param));
                           for (char& c : text) c = c == '+' ? '_' : c;
                           return text;
                         });

std::vector<std::string> names_of(const DexOptions& options) {
  const Config config = testing::tiny_config();
  Adaptation adaptation = initial_adaptation(options, config, testing::tiny_weights(config),
                                             testing::some_heads(config), 1);
  std::vector<std::string> names;
  for (const Trainable& entry : trainables(adaptation)) names.push_back(entry.name);
  return names;
}

// method.md §10 item 7.
TEST(TrainedSetTest, IsKnownByName) {
  const std::string layer = "model.layers.1.self_attn.";
  DexOptions lora = options_for(Train::kLora);
  lora.lora.targets = {Linear::kQ, Linear::kO};
  EXPECT_THAT(names_of(lora), ::testing::IsSupersetOf({layer + "q_proj.lora_A.weight",
                                                       layer + "q_proj.lora_B.weight",
                                                       layer + "o_proj.lora_A.weight"}));
  EXPECT_EQ(names_of(lora).size(), 3U * 2 * 2);

  EXPECT_THAT(names_of(options_for(Train::kAdapter)),
              ::testing::IsSupersetOf({layer + "adapter.down.weight", layer + "adapter.down.bias",
                                       std::string("model.layers.1.mlp.adapter.up.weight"),
                                       std::string("model.layers.1.mlp.adapter.up.bias")}));
  EXPECT_EQ(names_of(options_for(Train::kAdapter)).size(), 3U * 8);
  DexOptions one_place = options_for(Train::kAdapter);
  one_place.adapter.placement = Placement::kMlp;
  EXPECT_EQ(names_of(one_place).size(), 3U * 4);

  std::vector<std::string> all;
  const Config config = testing::tiny_config();
  for (const auto& [name, tensor] : named_weights(testing::tiny_weights(config)))
    all.push_back(name);
  EXPECT_THAT(names_of(options_for(Train::kFull)), ::testing::UnorderedElementsAreArray(all));
  EXPECT_EQ(names_of(options_for(Train::kFullDex)).size(), all.size() + 3 * 2);

  const auto lora_dex = names_of(options_for(Train::kLoraDex));
  EXPECT_THAT(lora_dex, ::testing::IsSupersetOf({layer + "k_proj.lora_A.weight", layer + "dex.w_d",
                                                 layer + "dex.lambda_learn"}));
  EXPECT_THAT(lora_dex, ::testing::Not(::testing::Contains(layer + "k_proj.weight")));
}

// The table of method.md §2.7 for SmolLM2-135M.
TEST(TrainedSetTest, CountsAreThoseOfTheTable) {
  Config config;
  config.layers = 30;
  config.heads = 9;
  config.kv_heads = 3;
  config.head_dim = 64;
  config.hidden_size = 576;
  config.intermediate_size = 1536;
  Weights base;
  base.embed = base.lm_head = at::empty({1, 1});
  for (int64_t i = 0; i < config.layers; ++i) {
    LayerWeights& layer = base.layers.emplace_back();
    layer.k = at::empty({192, 576});
    layer.v = at::empty({192, 576});
    layer.o = at::empty({576, 576});
  }
  const auto count = [&](Train train) {
    DexOptions options;
    options.train = train;
    options.form = Form::kNone;
    Adaptation adaptation = initial_adaptation(options, config, base, {}, 1);
    int64_t sum = 0;
    for (const Trainable& entry : trainables(adaptation)) sum += entry.tensor->numel();
    return sum;
  };
  EXPECT_EQ(count(Train::kLora), 921'600);
  EXPECT_EQ(count(Train::kAdapter), 4'462'080);
  EXPECT_EQ(count(Train::kKvoOnly), 16'588'800);
}

TEST(DropoutTest, IsAFunctionOfPassAndPlace) {
  const at::Tensor x = at::ones({64, 50});
  EXPECT_TRUE(drop_out(x, 0.3, std::nullopt, 0).is_same(x));  // evaluation and serving
  EXPECT_TRUE(drop_out(x, 0, Noise{1, 2}, 0).is_same(x));
  const at::Tensor dropped = drop_out(x, 0.3, Noise{1, 2}, 3);
  EXPECT_TRUE(dropped.equal(drop_out(x, 0.3, Noise{1, 2}, 3)));
  EXPECT_FALSE(dropped.equal(drop_out(x, 0.3, Noise{1, 2}, 4)));
  EXPECT_FALSE(dropped.equal(drop_out(x, 0.3, Noise{1, 3}, 3)));
  EXPECT_FALSE(dropped.equal(drop_out(x, 0.3, Noise{2, 2}, 3)));
  EXPECT_NEAR(dropped.eq(0).to(at::kFloat).mean().item<double>(), 0.3, 0.03);
  EXPECT_NEAR(dropped.max().item<double>(), 1 / 0.7, 1e-6);
}

TEST(BaselineOptionsTest, NamesWhatIsWrong) {
  EXPECT_TRUE(problems(LoraOptions{}).empty());
  EXPECT_THAT(problems(LoraOptions{.r = 0}),
              ::testing::ElementsAre("r must be between 1 and 256, got 0"));
  EXPECT_THAT(problems(LoraOptions{.alpha = std::nan("")}).at(0), ::testing::HasSubstr("alpha"));
  EXPECT_THAT(problems(LoraOptions{.dropout = 1}).at(0), ::testing::HasSubstr("below 1"));
  EXPECT_THAT(problems(LoraOptions{.targets = {Linear::kQ, Linear::kQ}}).at(0),
              ::testing::HasSubstr("q_proj twice"));
  EXPECT_THAT(problems(BottleneckAdapterOptions{.size = 0}).at(0), ::testing::HasSubstr("got 0"));
  EXPECT_THAT(
      [] { parse_linear("lm_head"); },
      ::testing::ThrowsMessage<std::runtime_error>(::testing::HasSubstr(
          "target module must be one of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
          "down_proj, got \"lm_head\"")));
  EXPECT_NEAR(lora_scale(16, 8, false), 2, 1e-12);
  EXPECT_NEAR(lora_scale(16, 4, true), 8, 1e-12);
}

}  // namespace
}  // namespace dex::model
