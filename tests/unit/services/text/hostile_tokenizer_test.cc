// A tokenizer.json that lies must give an error that names the fault, never a crash.
#include <filesystem>

#include "tests/support/temporary_directory.h"
#include "tests/unit/services/text/fixtures.h"

namespace dex::text {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json sound() {
  return json::parse(byte_tokenizer_json(true));
}

std::string fault_of(const std::string& text) {
  const auto tokenizer = Tokenizer::from_json(text, {});
  return tokenizer.ok() ? "" : tokenizer.status().message();
}

TEST(HostileTokenizerTest, RefusesWhatIsNotATokenizer) {
  for (const std::string text : {"", "{", "[]", "null", "{}", "\xFF\xFE", "{\"model\": 1}",
                                 "{\"model\": {\"type\": \"?\"}}"}) {
    EXPECT_NE(fault_of(text), "") << text;
  }
  EXPECT_NE(fault_of(std::string("\0\0\0", 3)), "");
}

TEST(HostileTokenizerTest, RefusesDeepNestingBeforeAnyParser) {
  EXPECT_NE(fault_of(std::string(1000000, '[')).find("deeper than 32"), std::string::npos);
  json deep = sound();
  json sequence = deep["pre_tokenizer"];
  for (int i = 0; i < 40; ++i) sequence = {{"type", "Sequence"}, {"pretokenizers", {sequence}}};
  deep["pre_tokenizer"] = sequence;
  EXPECT_NE(fault_of(deep.dump()).find("deeper than 32"), std::string::npos);
}

// The files beside tokenizer.json are copied level by level.
TEST(HostileTokenizerTest, RefusesDeepNestingOfItsNeighbours) {
  const support::TemporaryDirectory folder;
  const std::string deep(2'000'000, '[');
  for (const char* name : {"tokenizer_config.json", "generation_config.json"}) {
    const fs::path path = folder / name;
    std::ofstream(path) << R"({"eos_token_id": )" << deep << std::string(deep.size(), ']') << "}";
    const auto config = ModelTextConfig::load(folder.path());
    EXPECT_NE(config.status().message().find("nested deeper than 32"), std::string::npos) << name;
    fs::remove(path);
  }
}

TEST(HostileTokenizerTest, RefusesDuplicateAndHugeIds) {
  json twice = sound();
  twice["model"]["vocab"]["aa"] = 7;
  EXPECT_NE(fault_of(twice.dump()).find("id 7 is used twice"), std::string::npos);
  json huge = sound();
  huge["model"]["vocab"]["aa"] = 4294967295u;
  EXPECT_NE(fault_of(huge.dump()).find("ids must be below"), std::string::npos);
  json negative = sound();
  negative["model"]["vocab"]["aa"] = -1;
  EXPECT_NE(fault_of(negative.dump()), "");
}

TEST(HostileTokenizerTest, RefusesMergesOfUnknownTokensAndSurvivesCyclicOnes) {
  json unknown = sound();
  unknown["model"]["merges"] = json::array({"a nope"});
  EXPECT_NE(fault_of(unknown.dump()), "");
  // "a"+"b" → "ab", "ab"+"ab" → "abab", and the pair again: merging always shortens, so it ends.
  json cyclic = sound();
  cyclic["model"]["vocab"]["ab"] = 259;
  cyclic["model"]["vocab"]["abab"] = 260;
  cyclic["model"]["merges"] = json::array({"a b", "ab ab", "a b"});
  cyclic["added_tokens"] = json::array();
  cyclic.erase("post_processor");
  const auto tokenizer = Tokenizer::from_json(cyclic.dump(), {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_EQ(*(*tokenizer)->decode(*(*tokenizer)->encode("ababab", false), false), "ababab");
}

// Such an id would be looked up in the model's embedding.
TEST(HostileTokenizerTest, RefusesAPostProcessorThatAddsIdsOfNoToken) {
  json adding = sound();
  for (const int64_t id : {int64_t{259}, int64_t{4294967295}}) {
    adding["post_processor"]["special_tokens"]["<s>"]["ids"] = {id};
    EXPECT_NE(fault_of(adding.dump()).find("the post-processor adds id " + std::to_string(id)),
              std::string::npos)
        << id;
  }
}

TEST(HostileTokenizerTest, CatchesPanicsOfTheLibrary) {
  // A prefix longer than a merge's right side makes the library slice out of bounds.
  json prefixed = sound();
  prefixed["model"]["continuing_subword_prefix"] = "################";
  prefixed["model"]["vocab"]["ab"] = 259;
  prefixed["model"]["merges"] = json::array({"a b"});
  EXPECT_NE(fault_of(prefixed.dump()), "");
}

TEST(HostileTokenizerTest, RefusesDecodersWithoutBytes) {
  json bad = sound();
  bad.erase("decoder");
  EXPECT_NE(fault_of(bad.dump()).find("expected ByteLevel or ByteFallback"), std::string::npos);
  bad["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  EXPECT_NE(fault_of(bad.dump()).find("WordPiece"), std::string::npos);
}

TEST(HostileTokenizerTest, RefusesSpecialTokensThatAreNotThere) {
  ModelTextConfig config;
  config.tokens = {{"eos_token", "<nope>"}};
  const auto tokenizer = Tokenizer::from_json(byte_tokenizer_json(false), config);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_NE(tokenizer.status().message().find("<nope>"), std::string::npos);
}

TEST(HostileTokenizerTest, IgnoresPaddingAndTruncationOfTheFile) {
  json padded = sound();
  padded["truncation"] = {
      {"direction", "Right"}, {"max_length", 3}, {"strategy", "LongestFirst"}, {"stride", 0}};
  padded["padding"] = {{"strategy", {{"Fixed", 64}}},
                       {"direction", "Right"},
                       {"pad_to_multiple_of", nullptr},
                       {"pad_id", 0},
                       {"pad_type_id", 0},
                       {"pad_token", "!"}};
  const auto tokenizer = Tokenizer::from_json(padded.dump(), {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_EQ((*tokenizer)->encode("abcdef", true)->size(), 7u);
}

TEST(HostileTokenizerTest, NamesTheFileThatIsMissingOrBroken) {
  const fs::path folder = fs::path(testing::TempDir()) / "dex_text_broken_tokenizer";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const auto missing = Tokenizer::load(folder);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("tokenizer.json"), std::string::npos);
  std::ofstream(folder / "tokenizer.json") << "{}";
  const auto broken = Tokenizer::load(folder);
  ASSERT_FALSE(broken.ok());
  EXPECT_NE(broken.status().message().find("tokenizer.json"), std::string::npos);
  std::ofstream(folder / "tokenizer.json") << byte_tokenizer_json(false);
  std::ofstream(folder / "tokenizer_config.json") << "[1]";
  const auto config = Tokenizer::load(folder / "tokenizer.json");
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.status().message().find("tokenizer_config.json"), std::string::npos);
  fs::remove_all(folder);
}

TEST(HostileTokenizerTest, RefusesIdsAndTextOutsideItsDomain) {
  const auto tokenizer = byte_tokenizer();
  const std::vector<int32_t> negative{-1}, beyond{259};
  EXPECT_FALSE(tokenizer->decode(negative, false).ok());
  EXPECT_NE(tokenizer->decode(beyond, false).status().message().find("259"), std::string::npos);
  EXPECT_FALSE(tokenizer->encode("\xFF", false).ok());
  EXPECT_EQ(tokenizer->token_bytes(-1), "");
  EXPECT_FALSE(tokenizer->contains(259));
}

}  // namespace
}  // namespace dex::text
