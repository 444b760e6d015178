#include "services/data/file_repair.h"

#include <gmock/gmock.h>

#include "services/data/reader.h"
#include "tests/unit/services/data/files.h"

namespace dex::data {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string utf16(std::u16string_view text, bool little) {
  std::string bytes;
  for (const char16_t unit : text) {
    const char low = static_cast<char>(unit & 0xFF), high = static_cast<char>(unit >> 8);
    bytes += little ? low : high;
    bytes += little ? high : low;
  }
  return bytes;
}

class FileRepairTest : public testing::Test {
 protected:
  // The repaired bytes; the codes of what was.
  std::string repair(std::string_view bytes) {
    const auto from = folder_.write("from", bytes);
    const auto to = folder_.path() / ("to" + std::to_string(++count_));
    const auto codes = repair_file(from, to);
    EXPECT_TRUE(codes.ok()) << codes.status().to_string();
    codes_ = codes.ok() ? *codes : std::vector<std::string>();
    std::ifstream in(to, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  ScratchFolder folder_;
  std::vector<std::string> codes_;
  int count_ = 0;
};

TEST_F(FileRepairTest, DecodesUtf16InBothOrders) {
  const std::u16string_view rows = u"{\"text\": \"λ 😀 é\"}\r\n{\"text\": \"b\"}\n";
  const std::string want = "{\"text\": \"λ 😀 é\"}\n{\"text\": \"b\"}\n";
  for (const bool little : {true, false}) {
    EXPECT_EQ(repair(utf16(u"\xFEFF", little) + utf16(rows, little)), want);
    EXPECT_THAT(codes_, ElementsAre("encoding_utf16", "crlf_line_endings"));
    EXPECT_EQ(repair(utf16(rows, little)), want) << "without a mark";
  }
  EXPECT_EQ(repair(utf16(u"{\"text\": \"\xD83D\"}\n", true)), "{\"text\": \"\uFFFD\"}\n")
      << "half of a pair";
}

TEST_F(FileRepairTest, TakesAnArrayApartAndTouchesNothingInside) {
  EXPECT_EQ(repair("\xEF\xBB\xBF[\n  {\"text\": \"a, ]} \\\" [\", \"n\": 1.50},\n"
                   "  {\"text\": \"two  spaces\"}\n]\n"),
            "{\"text\":\"a, ]} \\\" [\",\"n\":1.50}\n{\"text\":\"two  spaces\"}\n");
  EXPECT_THAT(codes_, ElementsAre("bom_removed", "json_array_file"));
}

TEST_F(FileRepairTest, JoinsRowsThatAreSpreadOverLines) {
  EXPECT_EQ(repair("{\n  \"messages\": [\n    {\"role\": \"user\", \"content\": \"q\"}\n  ]\n}\n"
                   "{\n  \"messages\": []\n}"),
            "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}\n{\"messages\":[]}\n");
  EXPECT_THAT(codes_, ElementsAre("pretty_printed_json"));
}

TEST_F(FileRepairTest, WhatHasOtherFaultsKeepsThem) {
  const std::string bytes = "{\"text\": \"a\"}\n{\"text\": \n\nnot json\r{\"text\": \"b\"}";
  EXPECT_EQ(repair(bytes), bytes);
  EXPECT_THAT(codes_, IsEmpty());
  EXPECT_EQ(repair(""), "");
}

TEST_F(FileRepairTest, OverwritesNothing) {
  const auto there = folder_.write("there", "mine");
  EXPECT_FALSE(repair_file(folder_.write("from", text_rows(1)), there).ok());
  std::ifstream in(there);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "mine");
}

TEST_F(FileRepairTest, WhatItRepairsTheValidatorAccepts) {
  std::string array = "[";
  for (int i = 0; i < 12; ++i)
    array += (i > 0 ? ",\n" : "\n") + std::string("{\"text\": \"row ") + std::to_string(i) + "\"}";
  array += "\n]";
  EXPECT_FALSE(check(array).ready);
  EXPECT_TRUE(check(repair(array)).ready);
}

}  // namespace
}  // namespace dex::data
