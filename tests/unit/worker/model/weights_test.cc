#include "worker/model/weights.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "services/base/sha256.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/model/models.h"
#include "worker/model/safetensors.h"

namespace dex::model {
namespace {

class WeightsTest : public ::testing::Test {
 protected:
  support::TemporaryDirectory dir;
  Config config = testing::tiny_config();
  NamedTensors tensors = named_weights(testing::tiny_weights(config));

  void write() { write_safetensors(dir / "model.safetensors", tensors); }
  at::Tensor& tensor(const std::string& name) {
    for (auto& [key, value] : tensors) {
      if (key == name) return value;
    }
    throw std::runtime_error("no " + name);
  }
  std::string refusal(const WeightOptions& options = {}) {
    write();
    try {
      load_weights(dir.path(), config, options);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(WeightsTest, LoadsEveryTensorAsStoredOrWidened) {
  for (auto& [name, value] : tensors) value = value.to(at::kBFloat16);
  write();
  const Weights stored = load_weights(dir.path(), config),
                wide = load_weights(dir.path(), config, {at::kFloat, true});
  const auto a = named_weights(stored), b = named_weights(wide);
  ASSERT_EQ(a.size(), tensors.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].second.scalar_type(), at::kBFloat16);
    EXPECT_EQ(b[i].second.scalar_type(), at::kFloat);
    EXPECT_TRUE(a[i].second.equal(tensor(a[i].first)));
    EXPECT_TRUE(b[i].second.equal(tensor(a[i].first).to(at::kFloat)));
  }
  EXPECT_TRUE(stored.lm_head.is_same(stored.embed));
  EXPECT_EQ(base_weights_sha256(dir.path()), *base::sha256_file(dir / "model.safetensors"));
}

TEST_F(WeightsTest, NamesWhatIsMissingExtraOrMisshapen) {
  const auto whole = tensors;
  tensors.erase(tensors.begin() + 3);
  EXPECT_EQ(refusal(), "[weights] expected tensor \"" + whole[3].first +
                           "\" [12, 20], found none; config.json says llama of 3 layers: take it "
                           "and the weights from one model");
  tensors = whole;
  tensors.emplace_back("model.layers.3.mlp.up_proj.weight", at::ones({28, 20}));
  EXPECT_NE(refusal().find("\"model.layers.3.mlp.up_proj.weight\" belongs to no part"),
            std::string::npos);
  tensors = whole;
  tensor("model.layers.1.self_attn.q_proj.weight") = at::ones({20, 24});
  EXPECT_NE(refusal().find("expected shape [24, 20], found [20, 24]"), std::string::npos)
      << refusal();
  tensors = whole;
  tensor("model.norm.weight") = at::ones({20}, at::kInt);
  EXPECT_NE(refusal().find("floating-point"), std::string::npos);
  tensors = whole;
  tensors.emplace_back("model.layers.0.self_attn.rotary_emb.inv_freq", at::ones({3}));
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(WeightsTest, ATiedHeadMayBeStoredButMustBeTheEmbedding) {
  tensors.emplace_back("lm_head.weight", tensor("model.embed_tokens.weight").clone());
  EXPECT_EQ(refusal(), "accepted");
  tensor("lm_head.weight")[0][0] += 1;
  EXPECT_NE(refusal().find("differs from the embedding"), std::string::npos);
}

TEST_F(WeightsTest, RefusesNanWhenAsked) {
  tensor("model.layers.2.mlp.down_proj.weight")[0][5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(refusal(), "accepted");
  EXPECT_NE(
      refusal({std::nullopt, true}).find("model.layers.2.mlp.down_proj.weight: expected finite"),
      std::string::npos)
      << refusal({std::nullopt, true});
}

}  // namespace
}  // namespace dex::model
