#include "worker/model/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace dex::model {
namespace {

nlohmann::json good() {
  return {
      {"model_type", "llama"},       {"vocab_size", 49152},     {"hidden_size", 576},
      {"intermediate_size", 1536},   {"num_hidden_layers", 30}, {"num_attention_heads", 9},
      {"num_key_value_heads", 3},    {"head_dim", 64},          {"max_position_embeddings", 8192},
      {"rms_norm_eps", 1e-5},        {"rope_theta", 100000.0},  {"hidden_act", "silu"},
      {"tie_word_embeddings", true}, {"bos_token_id", 1},       {"eos_token_id", 2}};
}

std::string refusal(const nlohmann::json& json) {
  try {
    parse_config(json.dump(), "config.json");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ConfigTest, ReadsALlama) {
  const Config c = parse_config(good().dump(), "config.json");
  EXPECT_EQ(c.layers, 30);
  EXPECT_EQ(c.heads_per_kv(), 3);
  EXPECT_EQ(c.rope_theta, 100000.0);
  EXPECT_EQ(c.eos_token_ids, std::vector<int64_t>{2});
  EXPECT_EQ(c.parameter_count(), 134'515'008);  // method.md §2.7
}

TEST(ConfigTest, ReadsBothSpellingsOfRope) {
  nlohmann::json json = good();
  json.erase("rope_theta");
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5000.0}};
  EXPECT_EQ(parse_config(json.dump(), "c").rope_theta, 5000.0);
}

TEST(ConfigTest, OptionalKeysHaveTheirUsualMeaning) {
  nlohmann::json json = good();
  json.erase("head_dim");
  json.erase("num_key_value_heads");
  json["eos_token_id"] = {2, 7};
  json["bos_token_id"] = nullptr;
  const Config c = parse_config(json.dump(), "c");
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.kv_heads, 9);
  EXPECT_EQ(c.eos_token_ids, (std::vector<int64_t>{2, 7}));
  EXPECT_EQ(c.bos_token_id, -1);
}

// Each by itself is in range; their number of parameters would be beyond 64 bits.
TEST(ConfigTest, HeadsAreNoWiderThanAModel) {
  nlohmann::json json = good();
  json["num_attention_heads"] = json["num_key_value_heads"] = 4096;
  json["head_dim"] = 1 << 20;
  EXPECT_NE(refusal(json).find("key \"head_dim\", expected at most 256 with 4096 heads"),
            std::string::npos)
      << refusal(json);
}

TEST(ConfigTest, RefusalsNameTheKey) {
  for (const char* key : {"model_type", "vocab_size", "hidden_size", "intermediate_size",
                          "num_hidden_layers", "num_attention_heads", "max_position_embeddings",
                          "rms_norm_eps", "rope_theta", "hidden_act"}) {
    nlohmann::json json = good();
    json.erase(key);
    EXPECT_NE(refusal(json).find("key \"" + std::string(key) + "\""), std::string::npos)
        << refusal(json);
  }
  const std::vector<std::pair<std::string, nlohmann::json>> bad{
      {"vocab_size", 0},      {"vocab_size", -5},         {"vocab_size", "many"},
      {"hidden_size", 1.5},   {"num_hidden_layers", 1e9}, {"num_key_value_heads", 2},
      {"rms_norm_eps", 0},    {"rope_theta", "fast"},     {"model_type", "gemma2"},
      {"hidden_act", "gelu"}, {"head_dim", 63},           {"eos_token_id", 49152},
      {"eos_token_id", {-1}}, {"tie_word_embeddings", 1}, {"bos_token_id", 1e18}};
  for (const auto& [key, value] : bad) {
    nlohmann::json json = good();
    json[key] = value;
    EXPECT_NE(refusal(json).find("key \"" + key + "\""), std::string::npos)
        << key << ": " << refusal(json);
  }
}

// method.md §3.6: no analysis of its heads has a meaning here.
TEST(ConfigTest, ASoftcapIsRefusedWithTheReason) {
  nlohmann::json json = good();
  json["attn_logit_softcapping"] = 50.0;
  EXPECT_NE(refusal(json).find("key \"attn_logit_softcapping\", expected nothing (model uses logit "
                               "softcap: the log-sum-exp identity does not hold"),
            std::string::npos)
      << refusal(json);
  json = good();
  json["final_logit_softcapping"] = 30.0;
  EXPECT_NE(refusal(json).find("model uses logit softcap"), std::string::npos) << refusal(json);
}

// The published configs' numbers; the counts are those of the published weights.
TEST(ConfigTest, ReadsThePublishedFamilies) {
  const auto model = [](const char* type, int64_t vocabulary, int64_t hidden, int64_t intermediate,
                        int64_t layers, int64_t heads, int64_t kv_heads, int64_t positions,
                        bool tied) {
    return nlohmann::json{{"model_type", type},
                          {"vocab_size", vocabulary},
                          {"hidden_size", hidden},
                          {"intermediate_size", intermediate},
                          {"num_hidden_layers", layers},
                          {"num_attention_heads", heads},
                          {"num_key_value_heads", kv_heads},
                          {"max_position_embeddings", positions},
                          {"rms_norm_eps", 1e-6},
                          {"rope_theta", 1000000.0},
                          {"hidden_act", "silu"},
                          {"tie_word_embeddings", tied}};
  };
  nlohmann::json llama = model("llama", 128256, 2048, 8192, 16, 32, 8, 131072, true);  // 3.2 1B
  llama["rope_scaling"] = {{"factor", 32.0},
                           {"high_freq_factor", 4.0},
                           {"low_freq_factor", 1.0},
                           {"original_max_position_embeddings", 8192},
                           {"rope_type", "llama3"}};
  const Config three = parse_config(llama.dump(), "c");
  EXPECT_EQ(three.parameter_count(), 1'235'814'400);
  EXPECT_EQ(three.rope_scaling.type, RopeScaling::Type::kLlama3);
  EXPECT_EQ(three.rope_scaling.original_max_position_embeddings, 8192);

  nlohmann::json qwen2 = model("qwen2", 151936, 896, 4864, 24, 14, 2, 32768, true);  // 2.5 0.5B
  qwen2["use_sliding_window"] = false;
  qwen2["sliding_window"] = 32768;
  qwen2["max_window_layers"] = 24;
  const Config two = parse_config(qwen2.dump(), "c");
  EXPECT_EQ(two.parameter_count(), 494'032'768);
  EXPECT_TRUE(two.qkv_bias);
  EXPECT_FALSE(two.o_bias);
  EXPECT_EQ(two.sliding_window, 0);

  nlohmann::json qwen3 = model("qwen3", 151936, 1024, 3072, 28, 16, 8, 40960, true);  // 0.6B
  const Config norms = parse_config(qwen3.dump(), "c");
  EXPECT_EQ(norms.parameter_count(), 596'049'920);
  EXPECT_EQ(norms.head_dim, 128);  // of a config that doesn't say
  EXPECT_TRUE(norms.qk_norm);
  EXPECT_FALSE(norms.qkv_bias);
  qwen3["attention_bias"] = true;
  EXPECT_TRUE(parse_config(qwen3.dump(), "c").o_bias);

  nlohmann::json mistral = model("mistral", 32768, 4096, 14336, 32, 32, 8, 32768, false);  // 7B
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(parse_config(mistral.dump(), "c").parameter_count(), 7'248'023'552);
  EXPECT_EQ(parse_config(mistral.dump(), "c").sliding_window, 0);
  mistral["sliding_window"] = 4096;
  EXPECT_EQ(parse_config(mistral.dump(), "c").sliding_window, 4096);
  mistral["sliding_window"] = 32768;  // never full
  EXPECT_EQ(parse_config(mistral.dump(), "c").sliding_window, 0);
}

TEST(ConfigTest, RopeScalingIsReadInBothSpellings) {
  nlohmann::json json = good();
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  Config c = parse_config(json.dump(), "c");
  EXPECT_EQ(c.rope_scaling.type, RopeScaling::Type::kLinear);
  EXPECT_EQ(c.rope_scaling.factor, 4);
  json.erase("rope_scaling");
  json.erase("rope_theta");
  json["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 3.0}, {"rope_theta", 5000.0}};
  c = parse_config(json.dump(), "c");
  EXPECT_EQ(c.rope_scaling.factor, 3);
  EXPECT_EQ(c.rope_theta, 5000);
}

TEST(ConfigTest, RefusesOtherRopeByKeyAndValue) {
  const nlohmann::json llama3 = {{"rope_type", "llama3"},
                                 {"factor", 8.0},
                                 {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 4.0},
                                 {"original_max_position_embeddings", 8192}};
  const auto changed = [&](const std::string& key, const nlohmann::json& value) {
    nlohmann::json json = good();
    json["rope_scaling"] = llama3;
    json["rope_scaling"][key] = value;
    return refusal(json);
  };
  EXPECT_EQ(changed("factor", 8.0), "accepted");
  for (const auto& [key, value] : std::vector<std::pair<std::string, nlohmann::json>>{
           {"rope_type", "yarn"},
           {"rope_type", "dynamic"},
           {"rope_type", 3},
           {"factor", 0.5},
           {"factor", nullptr},
           {"low_freq_factor", 0},
           {"high_freq_factor", 1.0},
           {"partial_rotary_factor", 0.5},
           {"original_max_position_embeddings", 0}}) {
    const std::string text = changed(key, value);
    EXPECT_NE(text.find("rope_scaling: key \"" + key + "\""), std::string::npos) << text;
  }
  EXPECT_NE(changed("rope_type", "yarn").find("found \"yarn\""), std::string::npos);
  EXPECT_NE(changed("rope_type", "yarn").find("without the scaling the model works"),
            std::string::npos);
  nlohmann::json json = good();
  json["rope_scaling"] = {{"factor", 2.0}};  // of what kind?
  EXPECT_NE(refusal(json).find("key \"type\""), std::string::npos) << refusal(json);
}

TEST(ConfigTest, AWindowInSomeLayersIsRefusedByItsNumbers) {
  nlohmann::json json = good();
  json["sliding_window"] = 512;
  EXPECT_NE(refusal(json).find("key \"sliding_window\", expected nothing or null for a llama"),
            std::string::npos)
      << refusal(json);
  json["model_type"] = "mistral";
  EXPECT_EQ(parse_config(json.dump(), "c").sliding_window, 512);
  json["sliding_window"] = 0;
  EXPECT_NE(refusal(json).find("key \"sliding_window\""), std::string::npos);
  json.erase("sliding_window");  // null and missing are not the same
  EXPECT_NE(refusal(json).find("key \"sliding_window\""), std::string::npos);

  json["model_type"] = "qwen2";
  json["use_sliding_window"] = true;
  json["sliding_window"] = 512;
  json["max_window_layers"] = 28;
  EXPECT_NE(refusal(json).find("key \"max_window_layers\", expected the same attention in all 30 "
                               "layers, found a sliding window in 2 of them"),
            std::string::npos)
      << refusal(json);
  json["max_window_layers"] = 0;
  EXPECT_EQ(parse_config(json.dump(), "c").sliding_window, 512);
  json["max_window_layers"] = 30;
  EXPECT_EQ(parse_config(json.dump(), "c").sliding_window, 0);
  json["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_NE(refusal(json).find("key \"layer_types\""), std::string::npos) << refusal(json);
}

TEST(ConfigTest, RefusesWhatIsNotAnObjectOrDoubled) {
  EXPECT_THROW(parse_config("[]", "c"), std::runtime_error);
  EXPECT_THROW(parse_config("{", "c"), std::runtime_error);
  EXPECT_THROW(parse_config(R"({"vocab_size": 1, "vocab_size": 2})", "c"), std::runtime_error);
  EXPECT_THROW(parse_config(std::string(100000, '['), "c"), std::runtime_error);
}

}  // namespace
}  // namespace dex::model
