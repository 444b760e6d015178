// The promises of method.md §10 that a forward pass can break: identity at the start, causality,
// packing, frozen weights, gradients of a whole model against finite differences.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/model/models.h"
#include "worker/kernels/linear_cross_entropy.h"
#include "worker/model/llama.h"

namespace dex::model {
namespace {

using testing::all_options;
using testing::expect_close;
using testing::label;
using testing::moved_adaptation;

const std::vector<int64_t> kFirst{3, 14, 15, 9, 26, 5, 35, 8}, kSecond{57, 1, 42, 11, 30};

class AllOptionsTest : public ::testing::TestWithParam<DexOptions> {
 protected:
  Config config = testing::tiny_config();
  Weights weights = testing::tiny_weights(config);
  Llama llama{config, weights};
};

// Item 1: bit for bit (−0 = 0), which is at::equal's meaning.
TEST_P(AllOptionsTest, TheStartIsTheBaseBitForBit) {
  const Batch batch = pack({kFirst, kSecond});
  const at::Tensor base = llama.logits(batch);
  for (const Train train : {Train::kKvoDex, Train::kDexOnly, Train::kLoraDex, Train::kFullDex}) {
    SCOPED_TRACE(std::string(name(train)));
    DexOptions options = GetParam();
    options.train = train;
    const Adaptation start =
        initial_adaptation(options, config, weights, testing::some_heads(config), 1);
    EXPECT_TRUE(base.equal(llama.logits(batch, start)));
    Adaptation moved = start;
    for (LayerAdaptation& layer : moved.layers) {
      for (const char* key : {"w_d", "w_down", "w_up", "gate"}) {
        at::Tensor& tensor = branch_field(layer.branch, key);
        if (tensor.defined()) tensor = testing::random_tensor(tensor.sizes(), 8);
      }
      layer.lambda = {0, 0};
    }
    EXPECT_TRUE(base.equal(llama.logits(batch, moved)));
    for (LayerAdaptation& layer : moved.layers) layer.lambda = {0.4, 0};
    EXPECT_FALSE(base.equal(llama.logits(batch, moved)));
    for (LayerAdaptation& layer : moved.layers) layer.mask.zero_();
    EXPECT_TRUE(base.equal(llama.logits(batch, moved)));
  }
}

// Its negative control: the literal start of method.md §3.5 is not the base, and the check above
// sees it.
TEST_P(AllOptionsTest, TheLiteralStartIsNotTheBase) {
  const Batch batch = pack({kFirst, kSecond});
  DexOptions options = GetParam();
  options.lambda = {.schedule = Schedule::kConstant, .value = 0.1};
  const auto start_of = [&](Start start) {
    options.start = start;
    return llama.logits(
        batch, initial_adaptation(options, config, weights, testing::some_heads(config), 1));
  };
  const at::Tensor base = llama.logits(batch);
  EXPECT_TRUE(base.equal(start_of(Start::kIdentity)));
  EXPECT_FALSE(base.equal(start_of(Start::kLiteral)));
}

// Item 2.
TEST_P(AllOptionsTest, LaterTokensNeverChangeEarlierOutputs) {
  const Adaptation adapted = moved_adaptation(GetParam(), config, weights);
  const at::Tensor whole = llama.logits(pack({kFirst}), adapted);
  std::vector<int64_t> other = kFirst;
  for (size_t i = 5; i < other.size(); ++i) other[i] = (other[i] + 7) % config.vocab_size;
  const at::Tensor changed = llama.logits(pack({other}), adapted);
  expect_close(changed.narrow(0, 0, 5), whole.narrow(0, 0, 5), 1e-6);
  EXPECT_GT((changed - whole).narrow(0, 5, 3).abs().max().item<double>(), 1e-3);
}

// Item 3, the part that concerns a full forward pass.
TEST_P(AllOptionsTest, PackedIsSeparate) {
  const Adaptation adapted = moved_adaptation(GetParam(), config, weights);
  const at::Tensor packed = llama.logits(pack({kFirst, kSecond}), adapted);
  expect_close(packed.narrow(0, 0, 8), llama.logits(pack({kFirst}), adapted), 1e-5);
  expect_close(packed.narrow(0, 8, 5), llama.logits(pack({kSecond}), adapted), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Options, AllOptionsTest, ::testing::ValuesIn(all_options()),
                         [](const auto& info) { return label(info.param); });

// Item 3 from the other side: what a document says after t rows is what it says as a document of t
// rows, which is what a decode that carries the sums relies on.
TEST_P(AllOptionsTest, APrefixIsTheWholeSoFar) {
  const Adaptation adapted = moved_adaptation(GetParam(), config, weights);
  const at::Tensor whole = llama.logits(pack({kFirst}), adapted);
  for (const int64_t rows : {1, 3, 7}) {
    const std::vector<int64_t> prefix(kFirst.begin(), kFirst.begin() + rows);
    expect_close(llama.logits(pack({prefix}), adapted), whole.narrow(0, 0, rows), 1e-5);
  }
}

// Item 6.
TEST(IdentityTest, TheOrderOfSelectedHeadsDoesNotMatter) {
  EXPECT_TRUE(head_mask({3, 1}, 4).equal(head_mask({1, 3}, 4)));
}

// Item 7: nothing but the trained set has a gradient, and the base's tensors are never written.
TEST(IdentityTest, FrozenWeightsStayFrozen) {
  const Config config = testing::tiny_config();
  const Weights weights = testing::tiny_weights(config);
  std::vector<at::Tensor> before;
  for (const auto& [name, tensor] : named_weights(weights)) before.push_back(tensor.clone());
  Adaptation adapted = moved_adaptation(all_options().front(), config, weights);
  for (const auto& entry : trainables(adapted)) entry.tensor->requires_grad_();
  Llama(config, weights).logits(pack({kFirst, kSecond}), adapted).pow(2).sum().backward();
  size_t i = 0;
  for (const auto& [name, tensor] : named_weights(weights)) {
    EXPECT_FALSE(tensor.grad().defined()) << name;
    EXPECT_TRUE(tensor.equal(before[i++])) << name;
  }
}

// Item 9, for the whole model in fp64: every trained tensor, a few entries each.
TEST(IdentityTest, ModelGradientsAgreeWithFiniteDifferences) {
  const Config config = testing::tiny_config();
  const Weights weights = testing::tiny_weights(config, at::kDouble);
  const Llama llama(config, weights);
  const Batch batch = pack({kFirst, kSecond});
  const at::Tensor targets = batch.tokens.roll(-1), rows = at::full({13}, 1.0 / 13, at::kDouble);
  for (const DexOptions& options : all_options()) {
    Adaptation adapted = moved_adaptation(options, config, weights);
    for (LayerAdaptation& layer : adapted.layers) layer.mask = layer.mask.to(at::kDouble);
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
      for (int64_t i = 0; i < flat.size(0); i += 1 + flat.size(0) / 2) {
        const double was = flat[i].item<double>();
        const auto at_value = [&](double value) {
          flat[i].fill_(value);
          return loss().item<double>();
        };
        const double numeric = (at_value(was + 1e-5) - at_value(was - 1e-5)) / 2e-5;
        flat[i].fill_(was);
        const double found = entry.tensor->grad().defined()
                                 ? entry.tensor->grad().view({-1})[i].item<double>()
                                 : 0.0;
        EXPECT_NEAR(found, numeric, 1e-8 + 1e-6 * std::abs(numeric))
            << label(options) << " " << entry.name;
      }
    }
  }
}

TEST(LlamaErrorTest, NamesWhatIsOutOfRange) {
  const Config config = testing::tiny_config();
  const Weights weights = testing::tiny_weights(config);
  const Llama llama(config, weights);
  EXPECT_THROW(llama.hidden(pack({{1, 61}})), std::runtime_error);
  EXPECT_THROW(llama.hidden(pack({{-1}})), std::runtime_error);
  EXPECT_THROW(llama.hidden(pack({{}})), std::runtime_error);
  EXPECT_THROW(llama.hidden(pack({std::vector<int64_t>(65, 1)})), std::runtime_error);
  Batch bad = pack({{1, 2, 3}});
  bad.bounds = {0, 2};
  EXPECT_THROW(llama.hidden(bad), std::runtime_error);
}

}  // namespace
}  // namespace dex::model
