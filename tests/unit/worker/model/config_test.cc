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
      {"rms_norm_eps", 0},    {"rope_theta", "fast"},     {"model_type", "mamba"},
      {"hidden_act", "gelu"}, {"head_dim", 63},           {"eos_token_id", 49152},
      {"eos_token_id", {-1}}, {"tie_word_embeddings", 1}, {"bos_token_id", 1e18}};
  for (const auto& [key, value] : bad) {
    nlohmann::json json = good();
    json[key] = value;
    EXPECT_NE(refusal(json).find("key \"" + key + "\""), std::string::npos)
        << key << ": " << refusal(json);
  }
}

TEST(ConfigTest, RefusesRopeScalingByName) {
  nlohmann::json json = good();
  json["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
  EXPECT_NE(refusal(json).find("RoPE scaling is not supported"), std::string::npos)
      << refusal(json);
}

TEST(ConfigTest, RefusesWhatIsNotAnObjectOrDoubled) {
  EXPECT_THROW(parse_config("[]", "c"), std::runtime_error);
  EXPECT_THROW(parse_config("{", "c"), std::runtime_error);
  EXPECT_THROW(parse_config(R"({"vocab_size": 1, "vocab_size": 2})", "c"), std::runtime_error);
  EXPECT_THROW(parse_config(std::string(100000, '['), "c"), std::runtime_error);
}

}  // namespace
}  // namespace dex::model
