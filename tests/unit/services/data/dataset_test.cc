#include "services/data/dataset.h"

#include "tests/unit/services/data/files.h"
#include "tests/unit/services/text/fixtures.h"

namespace dex::data {
namespace {

TEST(LoadEncodedTest, GivesWhatTrainingSees) {
  const ScratchFolder folder;
  const auto path = folder.write(
      "a.jsonl",
      chat_rows(11) +
          R"({"tag": "t", "language": "en", "messages": [{"role": "user", "content": "Hello"},)"
          R"({"role": "assistant", "content": "Hi, how are you?"}]})"
          "\n");
  const auto loaded = load_encoded(path, &text::real_tokenizer(), &text::real_template(), {});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  ASSERT_EQ(loaded->examples.size(), 12u);
  EXPECT_EQ(loaded->format, text::RowFormat::kChat);
  const Example& last = loaded->examples.back();
  EXPECT_EQ(last.line, 12);
  EXPECT_EQ(last.tag, "t");
  EXPECT_EQ(last.language, "en");
  // The same chat as in the golden file: training's ids are serving's.
  bool compared = false;
  for (const auto& entry : text::golden()["chats"]) {
    if (entry["add_generation_prompt"].get<bool>() || entry["messages"].size() != 2) continue;
    if (entry["messages"][1]["content"] != "Hi, how are you?") continue;
    EXPECT_EQ(last.encoded.ids, entry["ids"].get<std::vector<int32_t>>());
    compared = true;
  }
  EXPECT_TRUE(compared);
  EXPECT_EQ(loaded->tokens.rows_trained, 12);
  EXPECT_EQ(loaded->rows.rows_good, 12);
}

TEST(LoadEncodedTest, CountsWithoutKeeping) {
  const ScratchFolder folder;
  const auto path = folder.write("a.jsonl", text_rows(12));
  const auto tokenizer = text::byte_tokenizer();
  LoadOptions options;
  options.keep_examples = false;
  const auto loaded = load_encoded(path, tokenizer.get(), nullptr, options);
  ASSERT_TRUE(loaded.ok());
  EXPECT_TRUE(loaded->examples.empty());
  EXPECT_EQ(loaded->tokens.rows_trained, 12);
}

TEST(LoadEncodedTest, HoldsToTheSkipBudget) {
  const ScratchFolder folder;
  std::string file;
  for (int i = 0; i < 100; ++i) {  // a row's first token has nothing before it to predict it from
    file += "{\"input_ids\": [5, 6, " + std::to_string(i) + "], \"labels\": [5, " +
            (i < 98 ? "6" : "-100") + ", -100]}\n";
  }
  const auto path = folder.write("a.jsonl", file);
  const auto tokenizer = text::byte_tokenizer();
  LoadOptions options;
  options.encoder.max_seq_length = 20;
  const auto refused = load_encoded(path, tokenizer.get(), nullptr, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().reason(), "FILE_INVALID");
  EXPECT_EQ(
      refused.status().message(),
      "2 of 100 rows can't be trained (2.00 %, skip_budget_ratio allows 1.00 %): 2 "
      "no_trainable_tokens (lines 99, 100). The first: line 99: no_trainable_tokens: no token "
      "of the row is trained: it needs an assistant message, completion or label of weight "
      "above 0 after its first token");
  options.skip_budget_ratio = 0.02;
  const auto loaded = load_encoded(path, tokenizer.get(), nullptr, options);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->examples.size(), 98u);
  EXPECT_EQ(loaded->finding_counts.at("no_trainable_tokens"), 2);
  options.encoder.max_seq_length = 2;
  options.encoder.truncation = text::Truncation::kLeft;
  options.skip_budget_ratio = 1;
  EXPECT_FALSE(load_encoded(path, tokenizer.get(), nullptr, options).ok());  // nothing is left
}

TEST(LoadEncodedTest, BothLayersShareTheSkipBudget) {
  const ScratchFolder folder;
  std::string file = text_rows(97);
  file += "not json\n{\"text\": 7}\n{\"text\": \"" + std::string(50, 'c') + "\"}\n";
  const auto path = folder.write("a.jsonl", file);
  const auto tokenizer = text::byte_tokenizer();
  LoadOptions options;
  options.encoder.max_seq_length = 20;
  options.encoder.truncation = text::Truncation::kError;
  options.skip_budget_ratio = 0.02;  // each layer alone would stay within it
  const auto refused = load_encoded(path, tokenizer.get(), nullptr, options);
  ASSERT_FALSE(refused.ok());
  const std::string message = refused.status().message();
  EXPECT_TRUE(
      message.starts_with("3 of 100 rows can't be trained (3.00 %, skip_budget_ratio allows "
                          "2.00 %): 1 invalid_json (line 98); 1 longer_than_context (line "
                          "100); 1 wrong_type (line 99). The first: line 98: invalid_json: "))
      << message;
  options.skip_budget_ratio = 0.03;
  const auto loaded = load_encoded(path, tokenizer.get(), nullptr, options);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->examples.size(), 97u);
  EXPECT_EQ(loaded->dropped.at("wrong_type").lines, std::vector<int64_t>{99});
  EXPECT_EQ(loaded->dropped.size(), 3u);
}

// What no budget excuses: the rest of the file was not read, or is something else.
TEST(LoadEncodedTest, RefusesFilesThatAreBrokenAsAWhole) {
  const ScratchFolder folder;
  const auto tokenizer = text::byte_tokenizer();
  LoadOptions options;
  options.skip_budget_ratio = 1;
  const auto message = [&](const std::string& file) {
    const auto path = folder.write("a.jsonl", file);
    return load_encoded(path, tokenizer.get(), nullptr, options).status().message();
  };
  EXPECT_TRUE(
      message(text_rows(50) + "{\"text\": \"cut").starts_with("line 51: truncated_last_line"));
  EXPECT_TRUE(
      message("{\"text\": 1}\n" + text_rows(50) + "\xFF\n").starts_with("line 52: invalid_utf8"));
  EXPECT_TRUE(message("{\n\"text\":\n\"a\"}\n").starts_with("line 1: pretty_printed_json"));
  EXPECT_TRUE(message("").starts_with("empty_file"));
  EXPECT_TRUE(message("{\"tokenizer_sha256\": \"" + std::string(64, '0') + "\"}\n") != "");
}

TEST(LoadEncodedTest, StopsAtItsLimits) {
  const ScratchFolder folder;
  const auto path = folder.write("a.jsonl", text_rows(100));
  const auto tokenizer = text::byte_tokenizer();
  LoadOptions options;
  options.max_tokens = 50;
  EXPECT_EQ(load_encoded(path, tokenizer.get(), nullptr, options).status().code(),
            base::Code::kResourceExhausted);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(load_encoded(path, tokenizer.get(), nullptr, {}, stop.get_token()).status().code(),
            base::Code::kCancelled);
}

TEST(LoadEncodedTest, ReadsRowsOfIdsWithoutATokenizer) {
  const ScratchFolder folder;
  std::string file;
  for (int i = 0; i < 12; ++i)
    file += "{\"input_ids\": [1, 2, " + std::to_string(i) + "], \"labels\": [-100, 2, " +
            std::to_string(i) + "]}\n";
  const auto path = folder.write("a.jsonl", file);
  LoadOptions options;
  options.encoder.vocab_size = 100;
  const auto loaded = load_encoded(path, nullptr, nullptr, options);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->examples[5].encoded.ids, (std::vector<int32_t>{1, 2, 5}));
  EXPECT_EQ(loaded->tokens.trainable_tokens, 24);
}

TEST(LoadEncodedTest, RefusesIdsOfAnotherTokenizer) {
  const ScratchFolder folder;
  const auto path =
      folder.write("a.jsonl", "{\"tokenizer_sha256\": \"" + std::string(64, '0') +
                                  "\"}\n{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n");
  const auto tokenizer = text::byte_tokenizer();
  const auto loaded = load_encoded(path, tokenizer.get(), nullptr, {});
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.status().message().find("made with the tokenizer 000000000000"),
            std::string::npos);
}

}  // namespace
}  // namespace dex::data
