#include "services/text/detokenizer.h"

#include <random>

#include "tests/unit/services/text/fixtures.h"

namespace dex::text {
namespace {

TEST(DetokenizerTest, PiecesEqualTheWholeOnRandomIds) {
  std::mt19937 random(7);
  const Tokenizer& tokenizer = real_tokenizer();
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> ids;
    // Half of them single bytes, so that broken and split characters are common.
    for (int i = 0; i < 40; ++i) {
      ids.push_back(static_cast<int32_t>(random() % (i % 2 ? tokenizer.vocab_size() : 300)));
    }
    for (const bool skip : {false, true}) {
      Detokenizer stream(tokenizer, {.skip_special_tokens = skip});
      std::string text;
      for (const int32_t id : ids) text += stream.push(id);
      text += stream.finish();
      const auto whole = tokenizer.decode(ids, skip);
      ASSERT_TRUE(whole.ok());
      ASSERT_EQ(text, *whole);
    }
  }
}

TEST(DetokenizerTest, HoldsBackACharacterUntilItsLastByte) {
  const auto tokenizer = byte_tokenizer();
  Detokenizer stream(*tokenizer);
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push(0x82), "");
  EXPECT_EQ(stream.push(0xAC), "€");
  EXPECT_EQ(stream.push(257), "");     // special
  EXPECT_EQ(stream.push(100000), "");  // a padded embedding's id
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

TEST(DetokenizerTest, NamesTokensThatAreNotTextByTheirBytes) {
  const auto tokenizer = byte_tokenizer();
  EXPECT_EQ(token_text(*tokenizer, 'a'), "a");
  EXPECT_EQ(token_text(*tokenizer, 0xE2), "bytes:\\xe2");
  EXPECT_EQ(token_text(*tokenizer, 257), "</s>");
}

TEST(DetokenizerTest, GivesEqualTextsOfDifferentIdsDifferentNames) {
  // Added tokens are written as text, vocabulary entries as bytes: "Ġ" (a space) and an added " "
  // are both " ".
  auto json = nlohmann::json::parse(byte_tokenizer_json(false));
  json["added_tokens"].push_back({{"id", 259},
                                  {"content", " "},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", false}});
  const auto tokenizer = Tokenizer::from_json(json.dump(), {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  const std::vector<int32_t> ids{' ', 'b', 259, ' '};
  EXPECT_EQ(distinct_token_texts(**tokenizer, ids),
            (std::vector<std::string>{" ", "b", "token_id:259", " "}));
}

TEST(DetokenizerTest, StripsTheSpaceThatSentencePiecePutsInFront) {
  nlohmann::json vocabulary = {{"<unk>", 0},  {"▁Hello", 1}, {"▁world", 2},
                               {"<0xE2>", 3}, {"<0x82>", 4}, {"<0xAC>", 5}};
  const nlohmann::json json = {
      {"version", "1.0"},
      {"added_tokens", nlohmann::json::array()},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"byte_fallback", true},
        {"vocab", vocabulary},
        {"merges", nlohmann::json::array()}}}};
  const auto tokenizer = Tokenizer::from_json(json.dump(), {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  const std::vector<int32_t> ids{1, 2, 3, 4, 5};
  Detokenizer stream(**tokenizer);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  EXPECT_EQ(text, "Hello world€");
  EXPECT_EQ(*(*tokenizer)->decode(ids, true), text);
}

}  // namespace
}  // namespace dex::text
