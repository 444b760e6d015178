// Files of evaluations: text and nothing more is promised of them.
#include "services/data/plain_check.h"

#include <gtest/gtest.h>

namespace dex::data {
namespace {

using std::literals::operator""s;

// In pieces of `size` bytes: a verdict must not depend on how a file arrives.
Report plain(const std::string& file, size_t size) {
  PlainCheck check;
  for (size_t at = 0; at < file.size(); at += size) check.feed(file.substr(at, size));
  return check.finish();
}

class PlainCheckTest : public testing::TestWithParam<size_t> {};

TEST_P(PlainCheckTest, TakesAnyText) {
  for (const std::string& file : {"a = b\n\n Wikitext \xE2\x80\x93 \xF0\x9F\x98\x80 here .\n"s,
                                  "q,A,B,C,D,A\n"s, "[{\"instruction\": 1}]"s, "\xEF\xBB\xBFx"s}) {
    const Report report = plain(file, GetParam());
    EXPECT_TRUE(report.ready) << file << report.message;
    EXPECT_EQ(report.statistics.bytes, static_cast<int64_t>(file.size()));
  }
}

TEST_P(PlainCheckTest, NamesTheLineThatIsNotUtf8) {
  const Report report = plain(
      "one\ntwo\nthr\xFF"
      "ee, and what follows is long enough\n",
      GetParam());
  EXPECT_FALSE(report.ready);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].code, "invalid_utf8");
  EXPECT_EQ(report.findings[0].line, 3);
  EXPECT_EQ(report.findings[0].byte_offset, 11);
}

TEST_P(PlainCheckTest, ACharacterCutByTheEndIsNotOne) {
  const Report report = plain("long enough to be text\n\xE2\x80", GetParam());
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].code, "invalid_utf8");
  EXPECT_EQ(report.findings[0].line, 2);
}

TEST_P(PlainCheckTest, RefusesWhatHoldsNothingAndArchives) {
  for (const std::string& file : {""s, "\n \t\r\n"s, "\xEF\xBB\xBF\n"s}) {
    const Report report = plain(file, GetParam());
    ASSERT_EQ(report.findings.size(), 1U) << file;
    EXPECT_EQ(report.findings[0].code, "empty_file");
  }
  const Report archive = plain("\x1F\x8B\x08\0\0\0\0\0 compressed"s, GetParam());
  ASSERT_EQ(archive.findings.size(), 1U);
  EXPECT_EQ(archive.findings[0].code, "compressed_file");
}

INSTANTIATE_TEST_SUITE_P(Pieces, PlainCheckTest, testing::Values(1, 2, 3, 7, 1000));

}  // namespace
}  // namespace dex::data
