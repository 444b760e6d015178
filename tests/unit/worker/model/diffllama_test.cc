// What folds, is shown and is refused on a model that subtracts heads by itself; against
// transformers it is tested as every family is (families_test.cc, family_gradients_test.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "services/base/files.h"
#include "tests/unit/worker/kernels/tensors.h"
#include "tests/unit/worker/model/family_fixture.h"
#include "tests/unit/worker/model/family_models.h"
#include "tests/unit/worker/model/golden.h"
#include "worker/model/adapter.h"
#include "worker/model/differential_attention.h"
#include "worker/model/fold.h"
#include "worker/model/llama.h"

namespace dex::model {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class DiffLlamaTest : public testing::FamilyFixture {
 protected:
  DiffLlamaTest() : FamilyFixture(1) {}

  Adaptation start_of(Train train) const {
    DexOptions options;
    options.form = Form::kNone;
    options.train = train;
    Adaptation adaptation = initial_adaptation(options, config, weights, {}, 1);
    for (const Trainable& entry : trainables(adaptation)) entry.tensor->requires_grad_();
    return adaptation;
  }
};

TEST_P(DiffLlamaTest, FoldsLoraAndKeepsTheArchitecture) {
  Adaptation adaptation = start_of(Train::kLora);
  const at::NoGradGuard no_grad;
  testing::move_all(adaptation, 0.2);
  const at::Tensor want = llama().logits(batch, adaptation);
  ASSERT_GT(certificate(want, llama().logits(batch)).largest, 1e-2);
  export_folded(dir / "out", base, config, adaptation, at::kFloat, {});
  const Config read = load_config(dir / "out");
  EXPECT_TRUE(read.differential());
  const Weights folded = load_weights(dir / "out", read);
  EXPECT_LT(certificate(Llama(read, folded).logits(batch), want).largest, 1e-4);
}

TEST_P(DiffLlamaTest, LaterTokensChangeNothingBefore) {
  const auto documents = testing::documents_of(golden);
  auto changed = documents;
  for (size_t t = 12; t < changed[0].size(); ++t)
    changed[0][t] = (changed[0][t] + 1) % config.vocab_size;
  const at::Tensor was = llama().logits(pack(documents)), is = llama().logits(pack(changed));
  const auto end = static_cast<int64_t>(documents[0].size());
  EXPECT_LT(certificate(is.slice(0, 0, 12), was.slice(0, 0, 12)).largest, 1e-5);
  EXPECT_GT(certificate(is.slice(0, 12, end), was.slice(0, 12, end)).largest, 1e-2);
  EXPECT_LT(certificate(is.slice(0, end), was.slice(0, end)).largest, 1e-5);
}

// A head is a pair: it has one map, one λ and one output of width 2d.
TEST_P(DiffLlamaTest, ShowsItsPairsAsHeads) {
  Observer observer;
  int64_t seen = 0, shares = 0;
  observer.on_second_map = [&](int64_t layer, const at::Tensor& share) {
    const LayerWeights& w = weights.layers[static_cast<size_t>(layer)];
    const double lambda = differential_lambda({w.lambda_q1, w.lambda_k1, w.lambda_q2, w.lambda_k2},
                                              lambda_init(layer))
                              .item<double>();
    EXPECT_NEAR(share.item<double>(), lambda, 1e-6);
    ++shares;
  };
  observer.on_heads = [&](int64_t, const at::Tensor& q, const at::Tensor& k, const at::Tensor& o) {
    const int64_t rows = batch.tokens.size(0), d = config.head_dim;
    EXPECT_EQ(q.sizes(), (at::IntArrayRef{rows, config.heads, d}));
    EXPECT_EQ(k.sizes(), (at::IntArrayRef{rows, config.kv_heads, d}));
    EXPECT_EQ(o.sizes(), (at::IntArrayRef{rows, config.heads / 2, 2 * d}));
    ++seen;
  };
  observer.head_gates.assign(static_cast<size_t>(config.layers), at::ones({2, config.heads / 2}));
  const at::Tensor with = llama().hidden(batch, {}, observer);
  testing::expect_close(with, llama().hidden(batch), 1e-6);
  EXPECT_EQ(seen, config.layers);
  EXPECT_EQ(shares, config.layers);
}

TEST_P(DiffLlamaTest, RefusesWhatHasNoMeaningOnIt) {
  Observer gates;
  gates.head_gates.assign(static_cast<size_t>(config.layers), at::ones({2, config.heads}));
  EXPECT_THAT([&] { llama().hidden(batch, {}, gates); },
              ThrowsMessage<std::runtime_error>(HasSubstr("[documents, output_heads]")));
  const std::string way_out = "train it with kvo_only, lora, adapter or full";
  std::vector<std::vector<int64_t>> heads(static_cast<size_t>(config.layers), {0});
  DexOptions options;
  options.lambda.anneal_steps = 10;
  EXPECT_THAT(problems(options, config, heads, 20), ::testing::Contains(HasSubstr(way_out)));
  const Adaptation branch = initial_adaptation(options, config, weights, heads, 1);
  EXPECT_THAT([&] { llama().hidden(batch, branch); },
              ThrowsMessage<std::runtime_error>(HasSubstr(way_out)));
  Adapter adapter = make_adapter(branch);
  adapter.base_weights_sha256 = base_weights_sha256(base);
  write_adapter(dir / "adapter", adapter);
  EXPECT_THAT(
      [&] {
        load_adapter(dir / "adapter", {config, adapter.base_weights_sha256});
      },
      ThrowsMessage<std::runtime_error>(HasSubstr(way_out)));
}

INSTANTIATE_TEST_SUITE_P(Families, DiffLlamaTest,
                         ::testing::ValuesIn(testing::differential_family_names()),
                         [](const auto& info) { return info.param; });

TEST(DiffLlamaConfigTest, RefusesWhatCantBePaired) {
  const auto text =
      *dex::base::read_file(testing::family_data("diffllama") / "config.json", 1 << 20);
  const auto with = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(text);
    json[key] = value;
    return [changed = json.dump()] { parse_config(changed, "c"); };
  };
  EXPECT_NO_THROW(with("num_key_value_heads", 2)());
  EXPECT_THAT(with("num_key_value_heads", 3),
              ThrowsMessage<std::runtime_error>(HasSubstr(
                  "key \"num_key_value_heads\", expected an even number, since a diffllama "
                  "subtracts heads in pairs, found 3")));
  EXPECT_THAT(with("attention_dropout", 0.1),
              ThrowsMessage<std::runtime_error>(HasSubstr("key \"attention_dropout\"")));
  EXPECT_THAT(with("sliding_window", 16),
              ThrowsMessage<std::runtime_error>(HasSubstr("key \"sliding_window\"")));
}

}  // namespace
}  // namespace dex::model
