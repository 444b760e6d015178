// The C++ classes against Hugging Face's Python libraries, exactly.
#include "services/text/detokenizer.h"
#include "tests/unit/services/text/fixtures.h"

namespace dex::text {
namespace {

TEST(GoldenTest, EncodesTrickyStringsAsThePythonLibraryDoes) {
  ASSERT_GT(golden()["strings"].size(), 50u);
  for (const auto& entry : golden()["strings"]) {
    const auto text = entry["text"].get<std::string>();
    const auto ids = real_tokenizer().encode(text, true);
    ASSERT_TRUE(ids.ok()) << ids.status().to_string();
    EXPECT_EQ(*ids, entry["ids"].get<std::vector<int32_t>>()) << text;
    const auto decoded = real_tokenizer().decode(*ids, true);
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(*decoded, entry["decoded"].get<std::string>());
  }
}

TEST(GoldenTest, DecodesArbitraryIdsAsThePythonLibraryDoesWholeAndPieceByPiece) {
  for (const auto& entry : golden()["lists"]) {
    const auto ids = entry["ids"].get<std::vector<int32_t>>();
    const auto expected = entry["decoded"].get<std::string>();
    const auto whole = real_tokenizer().decode(ids, false);
    ASSERT_TRUE(whole.ok());
    EXPECT_EQ(*whole, expected);
    Detokenizer stream(real_tokenizer(), {.skip_special_tokens = false});
    std::string text;
    for (const int32_t id : ids) {
      text += stream.push(id);
      ASSERT_TRUE(is_valid_utf8(text));
    }
    EXPECT_EQ(text + stream.finish(), expected);
  }
}

TEST(GoldenTest, RendersChatsAndTokenizesThemAsTransformersDoes) {
  ASSERT_FALSE(golden()["chats"].empty());
  for (const auto& entry : golden()["chats"]) {
    const auto text =
        real_template().render(messages_of(entry["messages"]), entry["add_generation_prompt"]);
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    EXPECT_EQ(*text, entry["text"].get<std::string>());
    const auto ids = real_tokenizer().encode(*text, false);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*ids, entry["ids"].get<std::vector<int32_t>>());
  }
}

TEST(GoldenTest, RendersTheConstructsOfWellKnownTemplatesAsJinja2Does) {
  ASSERT_FALSE(golden()["templates"].empty());
  for (const auto& entry : golden()["templates"]) {
    const auto made = ChatTemplate::from_source(entry["source"], entry["tokens"]);
    ASSERT_TRUE(made.ok()) << entry["name"] << made.status().to_string();
    const auto text =
        (*made)->render(messages_of(entry["messages"]), entry["add_generation_prompt"]);
    ASSERT_TRUE(text.ok()) << entry["name"] << text.status().to_string();
    EXPECT_EQ(*text, entry["text"].get<std::string>()) << entry["name"];
  }
}

TEST(GoldenTest, KnowsTheModelsSpecialTokens) {
  const Tokenizer& tokenizer = real_tokenizer();
  EXPECT_EQ(tokenizer.vocab_size(), golden()["vocab_size"].get<int32_t>());
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_EQ(tokenizer.stop_ids(), std::vector<int32_t>{2});
  EXPECT_FALSE(tokenizer.adds_bos());
  EXPECT_TRUE(tokenizer.is_special(1));
  EXPECT_FALSE(tokenizer.is_special(100));
  EXPECT_EQ(tokenizer.token_to_id("<|im_end|>"), 2);
  EXPECT_EQ(tokenizer.token_to_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.sha256().size(), 64u);
}

TEST(GoldenTest, TokenBytesOfAnEncodingAreTheText) {
  for (const auto& entry : golden()["strings"]) {
    std::string bytes;
    for (const int32_t id : entry["ids"].get<std::vector<int32_t>>())
      bytes += real_tokenizer().token_bytes(id);
    EXPECT_EQ(bytes, entry["text"].get<std::string>());
  }
}

}  // namespace
}  // namespace dex::text
