#include "client/cli/file_view.h"

#include <gmock/gmock.h>

namespace dex::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::PreviewFileResponse one_row() {
  v1::PreviewFileResponse preview;
  preview.mutable_encoding()->set_max_seq_length(512);
  auto& row = *preview.add_rows();
  row.set_line(3);
  row.set_sequences(1);
  const auto add = [&](const char* text, float weight) {
    row.add_tokens()->set_text(text);
    row.mutable_tokens(row.tokens_size() - 1)->set_weight(weight);
  };
  add("Hi ", 0);
  add("Tr", 1);
  add("bytes:\\xc3", 1);
  add("bytes:\\xa8", 1);
  add("s.", 0.5);
  row.set_prompt_tokens(1);
  row.set_trainable_tokens(4);
  return preview;
}

TEST(FileViewTest, APreviewMarksWhatIsTrained) {
  const std::string text = preview_text(one_row(), Terminal{});
  EXPECT_THAT(text, HasSubstr("line 3: 4 tokens trained, 1 only read"));
  EXPECT_THAT(text, HasSubstr("Hi ⟦Très.⟧")) << "characters that lie across tokens are whole";
  const std::string colored = preview_text(one_row(), Terminal{.color = true});
  EXPECT_THAT(colored, Not(HasSubstr("⟦")));
}

TEST(FileViewTest, APreviewSaysWhyARowIsLeftOut) {
  auto preview = one_row();
  preview.mutable_rows(0)->set_dropped_reason("no_trainable_tokens");
  preview.mutable_rows(0)->set_dropped_message("nothing to learn");
  EXPECT_THAT(preview_text(preview, Terminal{}),
              HasSubstr("left out: no_trainable_tokens: nothing to learn"));
}

TEST(FileViewTest, TokensAreAGuessUntilATokenizerCounts) {
  v1::File file;
  file.mutable_statistics()->set_tokens_guess(1234);
  const auto has = [](const Table& table, const std::string& what) {
    for (const auto& row : table)
      if (row.at(1).find(what) != std::string::npos) return true;
    return false;
  };
  EXPECT_TRUE(has(statistics_table(file), "a guess"));
  file.mutable_statistics()->mutable_tokens()->set_p99(77);
  EXPECT_FALSE(has(statistics_table(file), "a guess"));
  EXPECT_TRUE(has(statistics_table(file), "p99 77"));
}

}  // namespace
}  // namespace dex::cli
