#include "services/text/row.h"

#include <gtest/gtest.h>

namespace dex::text {
namespace {

TEST(RowTest, NamesFormatsAsTheApiDoes) {
  EXPECT_EQ(name(RowFormat::kPromptCompletion), "prompt_completion");
  EXPECT_EQ(name(RowFormat::kChat), "chat");
}

TEST(RowTest, HashDependsOnContentAndItsBorders) {
  const Row a{.format = RowFormat::kPromptCompletion, .prompt = "ab", .completion = "c"};
  Row b = a;
  EXPECT_EQ(content_hash(a), content_hash(b));
  b.prompt = "a", b.completion = "bc";
  EXPECT_NE(content_hash(a), content_hash(b));
  Row chat{.format = RowFormat::kChat, .messages = {{"user", "x"}, {"assistant", "y"}}};
  Row weighted = chat;
  weighted.messages[1].weight = 1.0;  // the default, written out
  EXPECT_EQ(content_hash(chat), content_hash(weighted));
  weighted.messages[1].weight = 0.5;
  EXPECT_NE(content_hash(chat), content_hash(weighted));
}

// The validation split of stored jobs hangs on these values: they never change.
TEST(RowTest, HashIsTheSameForEver) {
  EXPECT_EQ(content_hash(Row{.format = RowFormat::kText, .text = "hello"}), 8225795189758453844u);
}

}  // namespace
}  // namespace dex::text
