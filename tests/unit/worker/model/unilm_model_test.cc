// A model with unilm's attention becomes a DiffLlama (unilm.h): transformers' logits of the
// DiffLlama that it was taken from. That the layout is unilm's is shown layer by layer, against
// values with every map written out, in differential_attention_test.cc.
#include "worker/model/unilm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "tests/unit/worker/model/family_fixture.h"
#include "tests/unit/worker/model/unilm_folder.h"
#include "worker/model/fold.h"

namespace dex::model {
namespace {

using ::testing::HasSubstr;

class UnilmModelTest : public testing::FamilyFixture {
 protected:
  UnilmModelTest() : FamilyFixture(1) { testing::write_unilm(base, unilm); }

  // With which words the folder is refused.
  std::string refusal(const std::filesystem::path& folder) const {
    try {
      convert_unilm(folder, dir / "refused");
    } catch (const std::runtime_error& error) {
      EXPECT_FALSE(std::filesystem::exists(dir / "refused"));
      return error.what();
    }
    return "converted";
  }
  std::string refusal_with(const char* key, const nlohmann::json& value) const {
    auto json = nlohmann::json::parse(std::ifstream(base / "config.json"));
    json[key] = value;
    std::ofstream(unilm / "config.json") << json;
    return refusal(unilm);
  }
  // With one of its tensors replaced, or taken away where it is undefined.
  std::string refusal_with_tensor(const std::string& name, const at::Tensor& tensor) const {
    const WeightFiles files = WeightFiles::open(unilm);
    NamedTensors tensors;
    for (const std::string& each : files.names()) {
      if (each != name) tensors.emplace_back(each, files.tensor(each));
    }
    if (tensor.defined()) tensors.emplace_back(name, tensor);
    std::filesystem::create_directories(dir / "changed");
    std::filesystem::copy_file(base / "config.json", dir / "changed" / "config.json",
                               std::filesystem::copy_options::overwrite_existing);
    write_safetensors(dir / "changed" / "model.safetensors", tensors);
    return refusal(dir / "changed");
  }

  std::filesystem::path unilm = dir / "unilm";
};

TEST_P(UnilmModelTest, BecomesADiffLlamaWithTransformersLogits) {
  std::ofstream(unilm / "tokenizer.json") << "{}";
  const auto report = nlohmann::json::parse(convert_unilm(unilm, dir / "out"));
  EXPECT_EQ(report.at("folder"), (dir / "out").string());
  EXPECT_EQ(report.at("dtype"), "float32");
  const Config read = load_config(dir / "out");
  EXPECT_EQ(read.kind(), "diffllama");
  const Weights converted = load_weights(dir / "out", read, {std::nullopt, true});
  EXPECT_LT(certificate(Llama(read, converted).logits(batch), golden.tensor("logits")).largest,
            1e-4);
  EXPECT_TRUE(converted.embed.equal(weights.embed));
  EXPECT_TRUE(converted.layers[1].q.equal(weights.layers[1].q));

  EXPECT_TRUE(std::filesystem::exists(dir / "out" / "tokenizer.json"));
  const auto origin = nlohmann::json::parse(std::ifstream(dir / "out" / "conversion.json"));
  EXPECT_EQ(origin.at("weights_sha256"), base_weights_sha256(unilm));
  EXPECT_THROW(convert_unilm(unilm, dir / "out"), std::runtime_error) << "it is there already";
}

TEST_P(UnilmModelTest, KeepsTheTypeThatItsWeightsAreStoredIn) {
  testing::write_unilm(base, dir / "short", at::kBFloat16);
  const auto report = nlohmann::json::parse(convert_unilm(dir / "short", dir / "out"));
  EXPECT_EQ(report.at("dtype"), "bfloat16");
  const Weights converted = load_weights(dir / "out", load_config(dir / "out"));
  EXPECT_EQ(converted.layers[0].o.scalar_type(), at::kBFloat16);
  // The gain times W_O, both rounded to eight bits, once more rounded.
  const at::Tensor o = converted.layers[0].o.to(at::kFloat), was = weights.layers[0].o;
  EXPECT_LT(((o - was).abs() / was.abs().clamp_min(1e-3)).max().item<double>(), 0.02);
}

TEST_P(UnilmModelTest, EachTensorKeepsItsOwnType) {
  testing::write_unilm(base, dir / "short", at::kBFloat16);
  const std::string norm = "model.layers.0.input_layernorm.weight";
  const WeightFiles files = WeightFiles::open(dir / "short");
  NamedTensors mixed;
  for (const std::string& name : files.names()) {
    const bool wide = name == norm || name.ends_with("out_proj.weight");
    mixed.emplace_back(name, wide ? files.tensor(name).to(at::kFloat) : files.tensor(name).clone());
  }
  std::filesystem::create_directories(dir / "mixed");
  std::filesystem::copy_file(base / "config.json", dir / "mixed" / "config.json");
  write_safetensors(dir / "mixed" / "model.safetensors", mixed);
  const auto report = nlohmann::json::parse(convert_unilm(dir / "mixed", dir / "out"));
  EXPECT_EQ(report.at("dtype"), "bfloat16") << "the embedding's";
  const WeightFiles written = WeightFiles::open(dir / "out");
  EXPECT_EQ(written.info(norm).dtype, at::kFloat);
  EXPECT_TRUE(written.tensor(norm).equal(files.tensor(norm).to(at::kFloat)));
  EXPECT_EQ(written.info("model.layers.1.self_attn.o_proj.weight").dtype, at::kFloat);
  EXPECT_EQ(written.info("model.layers.0.mlp.up_proj.weight").dtype, at::kBFloat16);
  EXPECT_EQ(written.info("model.embed_tokens.weight").dtype, at::kBFloat16);
}

TEST_P(UnilmModelTest, RefusesWhatADiffLlamaCannotSay) {
  EXPECT_THAT(refusal_with("model_type", "llama"),
              HasSubstr("expected that of the diffllama to be made"));
  EXPECT_THAT(refusal_with("attention_bias", true), HasSubstr("\"attention_bias\""));
  EXPECT_THAT(refusal_with("rms_norm_eps", 1e-6), HasSubstr("expected 1e-05"));
}

TEST_P(UnilmModelTest, RefusesTensorsThatDontFitByName) {
  const std::string gain = "model.layers.1.self_attn.subln.weight";
  EXPECT_THAT(refusal(base), HasSubstr("self_attn.out_proj.weight")) << "DiffLlama's own names";
  EXPECT_THAT(refusal_with_tensor(gain, {}), HasSubstr(gain));
  EXPECT_THAT(refusal_with_tensor(gain, at::ones({config.head_dim})),
              HasSubstr("expected shape [" + std::to_string(2 * config.head_dim) + "]"));
  EXPECT_THAT(refusal_with_tensor(
                  gain, at::full({2 * config.head_dim}, std::numeric_limits<float>::quiet_NaN())),
              HasSubstr(gain));
  EXPECT_THAT(refusal_with_tensor("model.layers.0.self_attn.o_proj.weight", at::ones({2})),
              HasSubstr("belongs to no part of the model"));
}

INSTANTIATE_TEST_SUITE_P(Families, UnilmModelTest, ::testing::Values("diffllama"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace dex::model
