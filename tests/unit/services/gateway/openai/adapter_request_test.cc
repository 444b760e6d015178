#include "services/gateway/openai/adapter_request.h"

#include <gtest/gtest.h>

#include "services/gateway/openai/tokenizer_request.h"

namespace dex::gateway::openai {
namespace {

std::string load_refusal(const std::string& body) {
  const auto made = read_load_adapter(json::parse(body));
  return made.ok() ? "OK" : made.status().reason() + " " + made.status().violations().at(0).field;
}

TEST(LoadAdapterTest, ANameIsTheAdaptersIdOrAnAliasToSet) {
  const auto loaded = read_load_adapter(
      json::parse(R"({"lora_name": "ft:a", "lora_path": "ft:a", "load_inplace": true})"));
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->adapter, "ft:a");
  EXPECT_EQ(loaded->alias, "");
  const auto named =
      read_load_adapter(json::parse(R"({"lora_name": "live", "lora_path": "ft:a"})"));
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->adapter, "ft:a");
  EXPECT_EQ(named->alias, "live");
  EXPECT_FALSE(named->in_place);
  const auto moved = read_load_adapter(
      json::parse(R"({"lora_name": "live", "lora_path": "next", "load_inplace": true})"));
  ASSERT_TRUE(moved.ok());
  EXPECT_EQ(moved->adapter, "next") << "an alias is as good as an id";
  EXPECT_TRUE(moved->in_place);
  EXPECT_EQ(load_refusal(R"({"lora_name": "ft:b", "lora_path": "ft:a"})"),
            "INVALID_FIELD lora_name");
  EXPECT_EQ(load_refusal(R"({"lora_name": "ft:a"})"), "MISSING_FIELD lora_path");
  EXPECT_EQ(load_refusal(R"({"lora_name": "a", "lora_path": "a", "rank": 8})"),
            "UNKNOWN_FIELD rank");
}

TEST(LoadAdapterTest, APathIsNone) {
  for (const char* path : {"/etc/passwd", "../x", "https://x/y", "C:\\\\x", "~root", "."}) {
    EXPECT_EQ(load_refusal(R"({"lora_name": "x", "lora_path": ")" + std::string(path) + "\"}"),
              "PATH_NOT_ALLOWED lora_path")
        << path;
  }
}

TEST(TokenizeTest, APromptOrMessages) {
  const auto text = read_tokenize(json::parse(R"({"prompt": "", "add_special_tokens": false})"));
  ASSERT_TRUE(text.ok());
  EXPECT_TRUE(text.value().has_text());
  EXPECT_TRUE(text.value().has_add_special_tokens());
  EXPECT_TRUE(text.value().model().empty()) << "the caller fills in a default";
  const auto chat = read_tokenize(
      json::parse(R"({"messages": [{"role": "user", "content": "x"}], "model": "m"})"));
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat.value().chat().messages_size(), 1);
  EXPECT_EQ(read_tokenize(json::object()).status().reason(), "MISSING_FIELD");
  EXPECT_EQ(read_tokenize(json::parse(R"({"prompt": "x", "messages": []})")).status().reason(),
            "CONFLICTING_FIELDS");
  EXPECT_EQ(read_detokenize(json::parse(R"({"tokens": [1, 2]})")).value().ids(1), 2);
  EXPECT_EQ(read_detokenize(json::parse(R"({"tokens": [-1]})")).status().reason(),
            "VALUE_OUT_OF_RANGE");
}

}  // namespace
}  // namespace dex::gateway::openai
