#include "services/data/line_splitter.h"

#include <gtest/gtest.h>

#include <vector>

namespace dex::data {
namespace {

struct Seen {
  int64_t number, offset, size;
  std::string bytes;
  bool ended, carriage_return, too_long;
  bool operator==(const Seen&) const = default;
};

std::vector<Seen> split(std::string_view file, size_t piece, int64_t limit = 100) {
  std::vector<Seen> lines;
  LineSplitter splitter(limit, [&](const Line& line) {
    lines.push_back({line.number, line.byte_offset, line.size, std::string(line.bytes),
                     line.has_line_end, line.has_carriage_return, line.too_long});
  });
  for (size_t at = 0; at < file.size(); at += piece) splitter.feed(file.substr(at, piece));
  splitter.finish();
  return lines;
}

TEST(LineSplitterTest, GivesTheSameLinesHoweverTheBytesArrive) {
  const std::string_view file =
      "ab\n\r\n\nc\rd\r\n"
      "0123456789\n0123456789x\r\nlast";
  const auto whole = split(file, file.size(), 10);
  ASSERT_EQ(whole.size(), 7u);
  EXPECT_EQ(whole[0], (Seen{1, 0, 2, "ab", true, false, false}));
  EXPECT_EQ(whole[1], (Seen{2, 3, 0, "", true, true, false}));
  EXPECT_EQ(whole[2], (Seen{3, 5, 0, "", true, false, false}));
  EXPECT_EQ(whole[3], (Seen{4, 6, 3, "c\rd", true, true, false}));
  EXPECT_EQ(whole[4], (Seen{5, 11, 10, "0123456789", true, false, false}));
  EXPECT_EQ(whole[5], (Seen{6, 22, 11, "0123456789", true, true, true}));
  EXPECT_EQ(whole[6], (Seen{7, 35, 4, "last", false, false, false}));
  for (size_t piece = 1; piece < file.size(); ++piece) {
    const auto pieces = split(file, piece, 10);
    ASSERT_EQ(pieces.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(pieces[i], whole[i]) << piece;
  }
}

TEST(LineSplitterTest, ALineOfTheLimitIsNotTooLongNorIsItsCarriageReturn) {
  for (const size_t piece : {1, 3, 100}) {
    const auto lines = split("0123456789\r\n0123456789a\n", piece, 10);
    EXPECT_FALSE(lines[0].too_long) << piece;
    EXPECT_EQ(lines[0].bytes, "0123456789");
    EXPECT_TRUE(lines[1].too_long);
    EXPECT_EQ(lines[1].bytes, "0123456789");
    EXPECT_EQ(lines[1].size, 11);
  }
}

TEST(LineSplitterTest, AnEmptyStreamHasNoLine) {
  EXPECT_TRUE(split("", 1).empty());
  EXPECT_EQ(split("\n", 1).size(), 1u);
}

}  // namespace
}  // namespace dex::data
