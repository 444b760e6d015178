// Every family of base models against transformers (tests/data/model/make_families.py): names and
// shapes, logits, entropies, gradients with a branch, the folded export; and what doesn't fit.
#include "worker/model/families.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "services/base/files.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/kernels/tensors.h"
#include "tests/unit/worker/model/family_fixture.h"
#include "tests/unit/worker/model/family_models.h"
#include "tests/unit/worker/model/golden.h"
#include "worker/evaluate/attention_rows.h"
#include "worker/model/adapter.h"
#include "worker/model/config.h"
#include "worker/model/fold.h"
#include "worker/model/llama.h"
#include "worker/model/weights.h"

namespace dex::model {
namespace {

using testing::expect_close;

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.detach() - b).abs().max().item<double>();
}

class FamilyTest : public testing::FamilyFixture {
 protected:
  FamilyTest() : FamilyFixture(2) {}
};

TEST_P(FamilyTest, HasTransformersTensors) {
  std::map<std::string, at::Tensor> expected, found;
  for (const auto& [name, tensor] : testing::family_tensors(golden)) expected[name] = tensor;
  int64_t numbers = 0;
  for (const auto& [name, tensor] : named_weights(weights)) {
    found[name] = tensor;
    numbers += tensor.numel();
  }
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_TRUE(found[name].equal(tensor)) << name;
  }
  EXPECT_EQ(std::to_string(numbers), golden.metadata().at("parameters"));
  EXPECT_EQ(config.parameter_count(), numbers);
}

TEST_P(FamilyTest, GivesTheSameLogits) {
  EXPECT_LT(largest_difference(llama().logits(batch), golden.tensor("logits")), 1e-4);
}

class BranchFamilyTest : public FamilyTest {};

// method.md §4.1: the keys after norm and RoPE; the softmax itself is transformers'.
TEST_P(BranchFamilyTest, MeasuresTheSameEntropy) {
  const at::Tensor expected = golden.tensor("entropy");
  Observer observer;
  int64_t layers = 0;
  observer.on_heads = [&](int64_t layer, const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor&) {
    for (size_t i = 0; i + 1 < batch.bounds.size(); ++i) {
      const int64_t begin = batch.bounds[i], end = batch.bounds[i + 1];
      const at::Tensor found = evaluate::row_entropy(q.slice(0, begin, end), k.slice(0, begin, end),
                                                     config.sliding_window);
      EXPECT_LT(largest_difference(found.to(at::kFloat), expected[layer].slice(0, begin, end)),
                1e-4)
          << "layer " << layer;
    }
    ++layers;
  };
  llama().hidden(batch, {}, observer);
  EXPECT_EQ(layers, config.layers);
}

TEST_P(BranchFamilyTest, TrainsByTheSameGradients) {
  Adaptation adaptation = testing::family_branch(golden, config, weights);
  for (const Trainable& entry : trainables(adaptation)) entry.tensor->requires_grad_();
  EXPECT_LT(largest_difference(llama().logits(batch, adaptation), golden.tensor("dex.logits")),
            1e-4);
  const at::Tensor loss = testing::next_token_loss(llama(), batch, adaptation);
  expect_close(loss, golden.tensor("dex.loss"), 1e-5);
  loss.backward();
  size_t compared = 0;
  for (const Trainable& entry : trainables(adaptation)) {
    std::string key = "dex.grad." + entry.name;
    if (entry.group != Group::kBase) {  // model.layers.1.self_attn.dex.w_d → dex.1.grad.w_d
      const std::string layer = entry.name.substr(13, entry.name.find('.', 13) - 13);
      key = "dex." + layer + ".grad." + (entry.group == Group::kLambda ? "strength" : "w_d");
    }
    ASSERT_TRUE(golden.has(key)) << key;
    expect_close(entry.tensor->grad().view_as(golden.tensor(key)), golden.tensor(key), 1e-3,
                 key.c_str());
    ++compared;
  }
  for (const auto& [name, info] : golden.tensors()) {
    if (name.starts_with("dex.") && name.find("grad.") != std::string::npos)
      --compared;  // each of transformers' has its own
  }
  EXPECT_EQ(compared, 0U);
}

TEST_P(FamilyTest, FoldedExportIsTheSameArchitecture) {
  Adaptation adaptation = testing::family_adaptation(golden, config, weights);
  const bool branch = testing::has_branch_values(golden);
  if (!branch) testing::move_all(adaptation, 0.1);
  export_folded(dir / "out", base, config, adaptation, at::kFloat, {});
  const Config read = load_config(dir / "out");
  EXPECT_EQ(read.parameter_count(), config.parameter_count());
  EXPECT_EQ(nlohmann::json::parse(*dex::base::read_file(dir / "out" / "config.json", 1 << 20)),
            nlohmann::json::parse(*dex::base::read_file(base / "config.json", 1 << 20)));
  const Safetensors file =
      Safetensors::open(dir / "out" / "model.safetensors", Safetensors::Access::kRead);
  std::map<std::string, std::vector<int64_t>> expected;
  for (const auto& [name, tensor] : testing::family_tensors(golden))
    expected[name] = tensor.sizes().vec();
  std::map<std::string, std::vector<int64_t>> found;
  for (const auto& [name, info] : file.tensors()) found[name] = info.shape;
  EXPECT_EQ(found, expected);
  const Weights folded = load_weights(dir / "out", read);
  const auto was = named_weights(weights), is = named_weights(folded);
  ASSERT_EQ(is.size(), was.size());
  for (size_t i = 0; i < was.size(); ++i) {  // nothing that was not trained has moved by a bit
    ASSERT_EQ(is[i].first, was[i].first);
    if (trains_weight(adaptation.options.train, was[i].first)) continue;
    EXPECT_TRUE(is[i].second.equal(was[i].second)) << was[i].first;
  }
  EXPECT_LT(
      largest_difference(Llama(read, folded).logits(batch),
                         branch ? golden.tensor("dex.logits") : llama().logits(batch, adaptation)),
      1e-4);
}

TEST_P(FamilyTest, AdaptersKeepEveryTrainedTensor) {
  Adaptation adaptation = testing::family_adaptation(golden, config, weights);
  testing::move_all(adaptation, 0.05);
  Adapter adapter = make_adapter(adaptation);
  adapter.base_weights_sha256 = base_weights_sha256(base);
  write_adapter(dir / "adapter", adapter);
  const Adapter read = load_adapter(dir / "adapter", {config, adapter.base_weights_sha256});
  EXPECT_LT(
      largest_difference(llama().logits(batch, read.adaptation), llama().logits(batch, adaptation)),
      1e-6);
  for (size_t i = 0; i < adaptation.layers.size(); ++i) {
    const LayerAdaptation &was = adaptation.layers[i], &is = read.adaptation.layers[i];
    EXPECT_EQ(is.k_bias.defined(), config.qkv_bias);
    EXPECT_EQ(is.v_bias.defined(), config.qkv_bias);
    EXPECT_EQ(is.o_bias.defined(), config.o_bias);
    for (const auto& [bias, written] :
         {std::pair(is.k_bias, was.k_bias), std::pair(is.v_bias, was.v_bias),
          std::pair(is.o_bias, was.o_bias)}) {
      if (bias.defined()) {
        EXPECT_TRUE(bias.equal(written));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTest, ::testing::ValuesIn(testing::family_names()),
                         [](const auto& info) { return info.param; });

INSTANTIATE_TEST_SUITE_P(Families, BranchFamilyTest,
                         ::testing::ValuesIn(testing::branch_family_names()),
                         [](const auto& info) { return info.param; });

// A row of the table without golden values would be a promise that nobody checked.
TEST(FamiliesTest, EveryRowHasGoldenValues) {
  std::set<std::string> proven;
  for (const auto& name : testing::family_names())
    proven.insert(load_config(testing::family_data(name)).model_type);
  for (const Family& family : families())
    EXPECT_TRUE(proven.contains(std::string(family.model_type))) << family.model_type;
  EXPECT_EQ(proven.size(), families().size());
}

class ForeignWeightsTest : public ::testing::Test {
 protected:
  support::TemporaryDirectory dir;

  // What load_weights says of `family` after `change`.
  std::string refusal(const std::string& family, const std::function<void(NamedTensors&)>& change) {
    NamedTensors tensors = testing::family_tensors(testing::family_golden(family));
    change(tensors);
    testing::write_family(dir / family, family, tensors);
    try {
      load_weights(dir / family, load_config(dir / family));
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "accepted";
  }
  static auto without(const std::string& name) {
    return [name](NamedTensors& tensors) {
      std::erase_if(tensors, [&](const auto& tensor) { return tensor.first == name; });
    };
  }
  static auto with(const std::string& name, int64_t size) {
    return [name, size](NamedTensors& tensors) { tensors.emplace_back(name, at::ones({size})); };
  }
};

TEST_F(ForeignWeightsTest, NamesTensorModelAndWayOut) {
  const std::string out = "take it and the weights from one model";
  EXPECT_EQ(refusal("qwen3", without("model.layers.1.self_attn.q_norm.weight")),
            "[weights] expected tensor \"model.layers.1.self_attn.q_norm.weight\" [10], found "
            "none; config.json says qwen3 of 2 layers: " +
                out);
  EXPECT_EQ(refusal("qwen2", without("model.layers.0.self_attn.k_proj.bias")),
            "[weights] expected tensor \"model.layers.0.self_attn.k_proj.bias\" [4], found none; "
            "config.json says qwen2 of 2 layers: " +
                out);
  EXPECT_EQ(refusal("qwen2", with("model.layers.0.self_attn.o_proj.bias", 28)),
            "[weights] tensor \"model.layers.0.self_attn.o_proj.bias\" belongs to no part of the "
            "model; config.json says qwen2 of 2 layers: " +
                out);
  EXPECT_NE(refusal("mistral", with("model.layers.1.self_attn.q_proj.bias", 54))
                .find("q_proj.bias\" belongs to no part"),
            std::string::npos);
  EXPECT_NE(refusal("llama3", with("model.layers.0.self_attn.k_norm.weight", 8))
                .find("k_norm.weight\" belongs to no part"),
            std::string::npos);
}

}  // namespace
}  // namespace dex::model
