#include "client/cli/model_list.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "services/base/files.h"
#include "services/base/sha256.h"
#include "tests/support/temporary_directory.h"

namespace dex::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kList = R"({"about": "mine", "models": [
  {"name": "base", "folder": "base", "weights_sha256": "aa", "languages": ["en"]}]})";

class ModelListTest : public testing::Test {
 protected:
  ModelListTest() {
    std::ofstream(list()) << kList;
    fs::create_directories(folder());
    std::ofstream(folder() / "config.json") << R"({"model_type": "llama"})";
    std::ofstream(folder() / "tokenizer.json") << "tokens";
    std::ofstream(folder() / "model.safetensors") << "weights";
  }
  fs::path list() { return directory_ / "models.json"; }
  fs::path folder() { return directory_ / "mine"; }
  static v1::Model like() {
    v1::Model model;
    model.set_display_name("Base");
    model.set_license("Apache-2.0");
    model.add_languages("de");
    return model;
  }
  nlohmann::json stored() {
    return nlohmann::json::parse(base::read_file(list(), 1 << 20).value());
  }
  base::Status add(const std::string& name, const fs::path& place) {
    auto model = described_model(folder(), like());
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    model->set_name(name);
    return add_model(list(), *model, place);
  }

  support::TemporaryDirectory directory_;
};

TEST_F(ModelListTest, AnEntrySaysWhatTheFilesAre) {
  ASSERT_TRUE(check_new_model(list(), "mine-1.0").ok());
  ASSERT_TRUE(add("mine-1.0", folder()).ok());
  const auto json = stored();
  EXPECT_EQ(json.at("about"), "mine") << "what else is there stays";
  ASSERT_EQ(json.at("models").size(), 2U);
  EXPECT_EQ(json.at("models").at(0).at("weights_sha256"), "aa");
  const auto& entry = json.at("models").at(1);
  EXPECT_EQ(entry.at("name"), "mine-1.0");
  EXPECT_EQ(entry.at("folder"), "mine") << "relative to the list, as scheduler and agent read it";
  EXPECT_EQ(entry.at("family"), "llama");
  EXPECT_EQ(entry.at("license"), "Apache-2.0");
  EXPECT_EQ(entry.at("weights_sha256"), base::sha256_hex("weights"));
  EXPECT_EQ(entry.at("tokenizer_sha256"), base::sha256_hex("tokens"));
  EXPECT_FALSE(entry.contains("chat_template_sha256")) << "it has none";
  EXPECT_EQ(entry.at("languages"), nlohmann::json::array({"de"}));
}

TEST_F(ModelListTest, AFolderElsewhereIsNamedAbsolutely) {
  const support::TemporaryDirectory other;
  ASSERT_TRUE(add("other", other.path()).ok());
  EXPECT_EQ(stored().at("models").at(1).at("folder"), other.path().string());
}

TEST_F(ModelListTest, TheTemplateIsTheFileOrTheTokenizersText) {
  std::ofstream(folder() / "tokenizer_config.json") << R"({"chat_template": "{{ a }}"})";
  EXPECT_EQ(described_model(folder(), {})->chat_template_sha256(), base::sha256_hex("{{ a }}"));
  std::ofstream(folder() / "chat_template.jinja") << "{{ b }}";
  EXPECT_EQ(described_model(folder(), {})->chat_template_sha256(), base::sha256_hex("{{ b }}"));
}

// architecture.md §6: the lines of the shards, in name order.
TEST_F(ModelListTest, ShardsAreHashedTogether) {
  fs::remove(folder() / "model.safetensors");
  std::ofstream(folder() / "model-00002-of-00002.safetensors") << "two";
  std::ofstream(folder() / "model-00001-of-00002.safetensors") << "one";
  EXPECT_EQ(described_model(folder(), {})->weights_sha256(),
            base::sha256_hex(base::sha256_hex("one") + "  model-00001-of-00002.safetensors\n" +
                             base::sha256_hex("two") + "  model-00002-of-00002.safetensors\n"));
}

TEST_F(ModelListTest, WhatIsTakenOrNoNameIsRefused) {
  EXPECT_EQ(check_new_model(list(), "base").reason(), "NAME_TAKEN");
  EXPECT_EQ(add("base", folder()).reason(), "NAME_TAKEN");
  for (const char* name : {"", "Mine", "a/b", "../a", ".a", "a b"})
    EXPECT_EQ(check_new_model(list(), name).reason(), "INVALID_FIELD") << name;
  EXPECT_EQ(stored().at("models").size(), 1U);
  std::ofstream(list()) << "[]";
  EXPECT_THAT(check_new_model(list(), "mine").message(), HasSubstr("not a list of models"));
  EXPECT_FALSE(check_new_model(directory_ / "nothing.json", "mine").ok());
}

TEST_F(ModelListTest, AFolderThatIsNoModelIsRefused) {
  fs::remove(folder() / "model.safetensors");
  EXPECT_THAT(described_model(folder(), {}).status().message(), HasSubstr("no *.safetensors"));
  std::ofstream(folder() / "model.safetensors") << "weights";
  fs::remove(folder() / "tokenizer.json");
  EXPECT_FALSE(described_model(folder(), {}).ok());
  fs::remove(folder() / "config.json");
  EXPECT_FALSE(described_model(folder(), {}).ok());
}

}  // namespace
}  // namespace dex::cli
