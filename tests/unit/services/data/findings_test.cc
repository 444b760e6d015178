#include "services/data/findings.h"

#include <gtest/gtest.h>

#include "services/text/utf8.h"

namespace dex::data {
namespace {

void add(Findings& findings, std::string_view code, Severity severity, int64_t line) {
  findings.add(code, severity, [&] { return Finding{.line = line}; });
}

TEST(FindingsTest, CountsAllAndKeepsTheFirst) {
  Findings findings(3);
  int built = 0;
  for (int line = 1; line <= 10; ++line) {
    findings.add("blank_line", Severity::kWarning, [&] {
      ++built;
      return Finding{.line = line};
    });
  }
  EXPECT_EQ(findings.counts().at("blank_line"), 10);
  EXPECT_EQ(findings.list().size(), 3u);
  EXPECT_EQ(built, 3);
  EXPECT_EQ(findings.errors(), 0);
}

TEST(FindingsTest, ErrorsTakeThePlaceOfWarningsButNotOfErrors) {
  Findings findings(3);
  add(findings, "a", Severity::kError, 1);
  add(findings, "w", Severity::kWarning, 2);
  add(findings, "w", Severity::kWarning, 3);
  for (int line = 4; line < 10; ++line) add(findings, "b", Severity::kError, line);
  std::vector<int64_t> lines;
  for (const Finding& finding : findings.list()) lines.push_back(finding.line);
  EXPECT_EQ(lines, (std::vector<int64_t>{1, 4, 5}));
  EXPECT_EQ(findings.counts().at("w"), 2);
  EXPECT_EQ(findings.errors(), 7);
}

TEST(FindingsTest, FirstGivesErrorsBeforeTheRest) {
  Findings findings;
  add(findings, "i", Severity::kInfo, 1);
  add(findings, "w", Severity::kWarning, 2);
  add(findings, "e", Severity::kError, 9);
  const auto first = findings.first(2);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].code, "e");
  EXPECT_EQ(first[1].code, "w");
}

TEST(ExcerptTest, ShowsAtMost120CharactersAroundTheFault) {
  std::string line;
  for (int i = 0; i < 1000; ++i) line += "é";
  for (const size_t at : {size_t{0}, size_t{501}, line.size() - 1, line.size(), line.size() + 7}) {
    const std::string text = excerpt(line, at);
    EXPECT_TRUE(text::is_valid_utf8(text));
    EXPECT_LE(text::count_characters(text), 120u);
    EXPECT_GE(text::count_characters(text), at >= line.size() ? 0u : 20u);
    EXPECT_EQ(text.find("\xEF\xBF\xBD"), std::string::npos);
  }
  EXPECT_EQ(excerpt("a\tb\x01", 0), "a b ");
  EXPECT_EQ(excerpt("a\xFF", 0), "a\xEF\xBF\xBD");
  EXPECT_EQ(excerpt("", 0), "");
}

}  // namespace
}  // namespace dex::data
