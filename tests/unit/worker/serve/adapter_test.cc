#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>

#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/serve/tiny_adapters.h"
#include "worker/serve/adapter_table.h"
#include "worker/serve/serving_model.h"

namespace dex::serve {
namespace {

const std::filesystem::path kData = support::source_dir() / "tests/data";

class ServingAdapterTest : public ::testing::Test {
 protected:
  ServingAdapterTest() {
    train::testing::write_tiny_model(dir / "model");
    model = load_serving_model(dir / "model", Dtype::kF32);
  }
  std::filesystem::path written(const std::string& name, const std::string& base,
                                const std::string& tokenizer = {},
                                const std::string& chat_template = {}) {
    auto adapter = testing::tiny_adapter(testing::tiny_options()[0], 5, base);
    adapter.tokenizer_sha256 = tokenizer;
    adapter.chat_template_sha256 = chat_template;
    model::write_adapter(dir / name, adapter);
    return dir / name;
  }
  std::string refusal(const std::filesystem::path& path, const TextHashes& text = {}) {
    try {
      load_serving_adapter(path, "a", {}, *model, text);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "accepted";
  }
  std::shared_ptr<const ServingAdapter> small(const std::string& id, int64_t bytes) {
    auto out = std::make_shared<ServingAdapter>();
    out->id = id;
    out->bytes = bytes;
    return out;
  }

  support::TemporaryDirectory dir;
  std::shared_ptr<const ServingModel> model;
};

TEST_F(ServingAdapterTest, LoadsWhatWasWritten) {
  const auto adapter =
      load_serving_adapter(written("good", model->weights_sha256), "ft:tiny", {}, *model);
  EXPECT_EQ(adapter->id, "ft:tiny");
  EXPECT_EQ(adapter->content_sha256.size(), 64U);
  EXPECT_NE(adapter->key, 0U);
  EXPECT_GT(adapter->bytes, 0);
  EXPECT_EQ(adapter->layers.size(), 2U);
  EXPECT_NE(adapter->layers[0].o.data, nullptr);
}

TEST_F(ServingAdapterTest, RefusesWhatIsNotForThisModel) {
  EXPECT_EQ(refusal(written("good", model->weights_sha256)), "accepted");
  EXPECT_THAT(refusal(written("other", std::string(64, 'b'))),
              ::testing::HasSubstr("base_weights_sha256"));
  const auto path = written("tokenizer", model->weights_sha256, std::string(64, 'c'));
  EXPECT_THAT(refusal(path, {.tokenizer_sha256 = std::string(64, 'd')}),
              ::testing::HasSubstr("another tokenizer"));
  EXPECT_EQ(refusal(path, {.tokenizer_sha256 = std::string(64, 'c')}), "accepted");
  const auto chats = written("template", model->weights_sha256, {}, std::string(64, 'e'));
  EXPECT_THAT(refusal(chats, {.chat_template_sha256 = std::string(64, 'f')}),
              ::testing::HasSubstr("another chat template"));
  EXPECT_EQ(refusal(chats, {.chat_template_sha256 = std::string(64, 'e')}), "accepted");
  EXPECT_THAT(refusal(dir / "nowhere"), ::testing::HasSubstr("nowhere"));
}

TEST_F(ServingAdapterTest, RefusesBrokenFiles) {
  const auto path = written("broken", model->weights_sha256);
  std::filesystem::resize_file(path / "adapter_model.safetensors",
                               std::filesystem::file_size(path / "adapter_model.safetensors") - 7);
  EXPECT_THAT(refusal(path), ::testing::HasSubstr("adapter_model.safetensors"));
}

// By hand a folder that PEFT wrote is served as it is; an agent, which knows a hash, takes only
// ours.
TEST_F(ServingAdapterTest, ServesFoldersOfPeft) {
  const auto tiny = load_serving_model(kData / "train/model", Dtype::kF32);
  const auto path = kData / "lora/all_rslora";
  const auto adapter = load_serving_adapter(path, "a", {}, *tiny);
  EXPECT_NE(adapter->layers[1].term(model::Linear::kDown).a.data, nullptr);
  EXPECT_EQ(adapter->layers[1].o.data, nullptr);  // beside the base's products, not merged
  EXPECT_THROW(load_serving_adapter(path, "a", std::string(64, 'a'), *tiny), std::runtime_error);
}

// A LoRA adapter of SmolLM2's usual size stays small: factors only.
TEST_F(ServingAdapterTest, LoraTakesItsFactors) {
  const auto lora = testing::tiny_adapter(testing::tiny_options()[testing::kAttentionLora], 5,
                                          model->weights_sha256);
  const auto serving = make_serving_adapter(lora, "a", std::string(64, 'a'), *model);
  const int64_t sides = (32 + 32) + 2 * (16 + 32) + (32 + 32);
  EXPECT_EQ(serving->bytes, 2 * 5 * sides * 4);
}

TEST_F(ServingAdapterTest, TheTableIsBounded) {
  AdapterTable table(100);
  table.put(small("a", 60));
  EXPECT_THROW(table.put(small("b", 50)), std::runtime_error);
  table.put(small("b", 40));
  EXPECT_EQ(table.bytes(), 100);
  EXPECT_EQ(table.find("c"), nullptr);
  EXPECT_TRUE(table.remove("a"));
  EXPECT_FALSE(table.remove("a"));
  EXPECT_EQ(table.bytes(), 40);
}

TEST_F(ServingAdapterTest, AnAdapterLeavesWithItsLastRequest) {
  AdapterTable table(100);
  table.put(small("a", 60));
  auto request = table.find("a");
  bool gone = false;
  EXPECT_TRUE(table.remove("a", [&] { gone = true; }));
  EXPECT_EQ(table.find("a"), nullptr);  // nobody new
  EXPECT_FALSE(gone);
  EXPECT_EQ(table.bytes(), 60);
  request.reset();
  EXPECT_TRUE(gone);
  EXPECT_EQ(table.bytes(), 0);
}

}  // namespace
}  // namespace dex::serve
