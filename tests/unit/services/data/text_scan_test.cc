#include "services/data/text_scan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dex::data {
namespace {

std::vector<std::string> marks(std::string_view text) {
  std::vector<std::string> found;
  scan_text(text, [&](const TextMark& mark) {
    found.push_back(std::string(mark.code) + ":" + std::string(text.substr(mark.begin, mark.size)));
  });
  return found;
}

using Strings = std::vector<std::string>;

TEST(TextScanTest, SeesSpecialTokens) {
  EXPECT_EQ(marks("a<|im_start|>b"), Strings{"special_token_in_text:<|im_start|>"});
  EXPECT_EQ(marks("x </s> <s>"), Strings{"special_token_in_text:</s>"});  // the first of a code
  EXPECT_EQ(marks("[INST] hi"), Strings{"special_token_in_text:[INST]"});
  EXPECT_TRUE(marks("a <| b |> <||> if (a<b|c>d) <strong> [IN]").empty());
}

TEST(TextScanTest, SeesSecretsByTheirShape) {
  const std::string letters(60, 'a');
  EXPECT_EQ(marks("x=AKIAABCDEFGHIJKLMNOP;").size(), 1u);
  EXPECT_EQ(marks("ghp_" + letters.substr(0, 36)).size(), 1u);
  EXPECT_EQ(marks("token hf_" + letters.substr(0, 34)).size(), 1u);
  EXPECT_EQ(marks("-----BEGIN PRIVATE KEY-----\nMII").size(), 1u);
  EXPECT_EQ(marks("dex_" + letters.substr(0, 49)).size(), 1u);
  EXPECT_TRUE(marks("ghp_short sk-learn task-" + letters + " AKIA " + "mysk-" + letters).empty());
}

TEST(TextScanTest, SeesReplacementCharacters) {
  EXPECT_EQ(marks("a\xEF\xBF\xBD b\xEF\xBF\xBD").size(), 1u);
  EXPECT_TRUE(marks("\xEF\xBF\xBC\xEF\xBB\xBF").empty());
}

}  // namespace
}  // namespace dex::data
