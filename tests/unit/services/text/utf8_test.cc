#include "services/text/utf8.h"

#include <gtest/gtest.h>

namespace dex::text {
namespace {

TEST(Utf8Test, FindsTheFirstInvalidByte) {
  EXPECT_EQ(find_invalid_utf8(""), 0u);
  EXPECT_TRUE(is_valid_utf8("plain ASCII, longer than eight bytes"));
  EXPECT_TRUE(is_valid_utf8("é€😀\xF4\x8F\xBF\xBF"));
  EXPECT_EQ(find_invalid_utf8("abcdefghij\x80"), 10u);
  EXPECT_EQ(find_invalid_utf8("ab\xC0\xAF"), 2u);        // overlong
  EXPECT_EQ(find_invalid_utf8("\xE0\x80\x80"), 0u);      // overlong
  EXPECT_EQ(find_invalid_utf8("a\xED\xA0\x80"), 1u);     // surrogate
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("\xF5\x80\x80\x80"), 0u);
  EXPECT_EQ(find_invalid_utf8("ok\xE2\x82"), 2u);  // cut off
  EXPECT_EQ(find_invalid_utf8("\xFF"), 0u);
}

TEST(Utf8Test, CountsCharactersAndCutsBetweenThem) {
  EXPECT_EQ(count_characters("aé€😀"), 4u);
  EXPECT_EQ(utf8_prefix("aé€😀", 100), 10u);
  EXPECT_EQ(utf8_prefix("aé€😀", 9), 6u);
  EXPECT_EQ(utf8_prefix("aé€😀", 2), 1u);
  EXPECT_EQ(utf8_prefix("é", 0), 0u);
}

TEST(Utf8StreamTest, HoldsBackUnfinishedCharacters) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xF0"), "");
  EXPECT_EQ(stream.push("\x9F\x98"), "");
  EXPECT_EQ(stream.push("\x80x"), "😀x");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8StreamTest, ReplacesEachMaximalBrokenPart) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xE2\x82"), "");
  EXPECT_EQ(stream.push("A"),
            "\xEF\xBF\xBD"
            "A");  // a truncated sequence is one replacement
  EXPECT_EQ(stream.push("\x80\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");  // stray bytes are one each
  EXPECT_EQ(stream.push("\xF0\x9F"), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.push("new"), "new");
}

}  // namespace
}  // namespace dex::text
