// What is previewed is what training reads: the same ids and weights, whatever the format and the
// way of cutting.
#include "services/data/file_preview.h"

#include "services/data/dataset.h"
#include "tests/unit/services/data/files.h"
#include "tests/unit/services/text/fixtures.h"

namespace dex::data {
namespace {

std::vector<PreviewedRow> preview(std::string_view file, const text::RowEncoder& encoder,
                                  const text::Tokenizer& tokenizer,
                                  FilePreview::Options options = {}, int64_t* next = nullptr) {
  options.encoder = &encoder;
  options.tokenizer = &tokenizer;
  FilePreview preview(std::move(options));
  for (size_t at = 0; at < file.size() && !preview.done(); at += 7)
    preview.feed(file.substr(at, 7));
  auto rows = preview.finish();
  if (next != nullptr) *next = preview.next_offset();
  return rows;
}

// Rows of every format, some of them longer than 24 tokens of the byte tokenizer.
std::vector<std::string> files() {
  std::string pairs, texts, tokens;
  for (int i = 0; i < 12; ++i) {
    const std::string filler(static_cast<size_t>(5 * i), 'x');
    pairs += R"({"prompt": "question )" + filler + R"(", "completion": "é )" + filler + "\"}\n";
    texts += R"({"text": "long text )" + filler + "\"}\n";
    tokens += R"({"input_ids": [1, )" + std::to_string(i) + R"(, 3], "labels": [-100, )" +
              std::to_string(i) + ", 3]}\n";
  }
  return {chat_rows(12), pairs, texts, tokens};
}

TEST(FilePreviewTest, ShowsTheIdsAndWeightsThatTrainingReads) {
  const ScratchFolder folder;
  const auto tokenizer = text::byte_tokenizer(true);
  const auto chat = text::template_of(
      "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}<|turn|>{% endfor %}");
  for (const auto how : {text::Truncation::kAuto, text::Truncation::kRight, text::Truncation::kLeft,
                         text::Truncation::kChunk}) {
    for (const bool inputs : {false, true}) {
      const text::RowEncoder::Options encoding{
          .max_seq_length = 24, .truncation = how, .train_on_inputs = inputs};
      const text::RowEncoder encoder(tokenizer.get(), chat.get(), encoding);
      for (const std::string& file : files()) {
        LoadOptions loading;
        loading.encoder = encoding;
        const auto trained =
            load_encoded(folder.write("a.jsonl", file), tokenizer.get(), chat.get(), loading);
        ASSERT_TRUE(trained.ok()) << trained.status().to_string();
        const auto shown = preview(file, encoder, *tokenizer, {.limit = 1000});
        ASSERT_EQ(shown.size(), trained->examples.size());
        for (size_t i = 0; i < shown.size(); ++i) {
          EXPECT_EQ(shown[i].encoded.ids, trained->examples[i].encoded.ids);
          EXPECT_EQ(shown[i].encoded.weights, trained->examples[i].encoded.weights);
          EXPECT_EQ(shown[i].line, trained->examples[i].line);
          EXPECT_EQ(shown[i].dropped_code, "");
        }
      }
    }
  }
}

TEST(FilePreviewTest, TheTextIsThatOfTheTokens) {
  const auto rows =
      preview(chat_rows(1), text::RowEncoder(&text::real_tokenizer(), &text::real_template(), {}),
              text::real_tokenizer());
  ASSERT_EQ(rows.size(), 1u);
  const std::vector<text::Message> chat = {{.role = "user", .content = "q0"},
                                           {.role = "assistant", .content = "a"}};
  EXPECT_EQ(rows[0].rendered, text::real_template().render(chat, false).value());
  EXPECT_GT(rows[0].encoded.trainable_tokens, 0);
}

TEST(FilePreviewTest, NamedLinesSayWhyTheyAreLeftOut) {
  const auto tokenizer = text::byte_tokenizer();
  const text::RowEncoder encoder(tokenizer.get(), nullptr, {.max_seq_length = 8});
  const std::string file = R"({"prompt": "p", "completion": "one"})"
                           "\nnot json\n\n"
                           R"({"prompt": "p", "completion": ""})"
                           "\n"
                           R"({"prompt": "p", "completion": "two"})"
                           "\n";
  const auto rows = preview(file, encoder, *tokenizer, {.lines = {5, 2, 3, 99}});
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].line, 2);
  EXPECT_EQ(rows[0].dropped_code, "invalid_json");
  EXPECT_NE(rows[0].dropped_message, "");
  EXPECT_EQ(rows[1].dropped_code, "no_row") << "a blank line";
  EXPECT_EQ(rows[2].line, 5);
  EXPECT_EQ(rows[2].rendered, "ptwo</s>");
  EXPECT_EQ(rows[3].dropped_code, "no_row") << "behind the end";
}

TEST(FilePreviewTest, ARowWithoutATargetIsShownAndNamed) {
  const auto tokenizer = text::byte_tokenizer();
  const text::RowEncoder encoder(tokenizer.get(), nullptr,
                                 {.max_seq_length = 4, .truncation = text::Truncation::kError});
  const auto rows = preview(text_rows(1, 123456), encoder, *tokenizer);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].dropped_code, "longer_than_context");
  EXPECT_EQ(rows[0].rendered, "row 123456</s>");
}

TEST(FilePreviewTest, PagesMeetWithoutGapOrRepeat) {
  const auto tokenizer = text::byte_tokenizer();
  const text::RowEncoder encoder(tokenizer.get(), nullptr, {});
  std::vector<int64_t> lines;
  int64_t offset = 0;
  do {
    for (const auto& row :
         preview(text_rows(11), encoder, *tokenizer, {.offset = offset, .limit = 4}, &offset)) {
      lines.push_back(row.line);
    }
  } while (offset > 0);
  EXPECT_EQ(lines, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

}  // namespace
}  // namespace dex::data
