#include "scheduler/server/findings_view.h"

#include <gtest/gtest.h>

namespace dex::server {
namespace {

TEST(FindingsViewTest, FormatsGoBothWays) {
  for (const auto format : {text::RowFormat::kChat, text::RowFormat::kPromptCompletion,
                            text::RowFormat::kText, text::RowFormat::kTokens}) {
    EXPECT_EQ(row_format(format_view(format)), format);
    EXPECT_NE(format_view(format), v1::FILE_FORMAT_UNSPECIFIED);
  }
  EXPECT_EQ(row_format(v1::FILE_FORMAT_UNSPECIFIED), std::nullopt) << "taken from the first row";
  EXPECT_EQ(format_view(std::nullopt), v1::FILE_FORMAT_UNSPECIFIED);
}

data::Finding finding(int64_t line, const std::string& code, data::Severity severity) {
  data::Finding made;
  made.line = line;
  made.byte_offset = 100 + line;
  made.json_path = "$.messages[1].role";
  made.code = code;
  made.severity = severity;
  made.message = "what";
  made.hint = "how to mend it";
  made.excerpt = "…text…";
  return made;
}

TEST(FindingsViewTest, AFindingKeepsAllThatHelpsToRepairIt) {
  const auto view = finding_view(finding(7, "unknown_role", data::Severity::kError));
  EXPECT_EQ(view.line(), 7);
  EXPECT_EQ(view.byte_offset(), 107);
  EXPECT_EQ(view.json_path(), "$.messages[1].role");
  EXPECT_EQ(view.code(), "unknown_role");
  EXPECT_EQ(view.severity(), v1::Finding::SEVERITY_ERROR);
  EXPECT_EQ(view.message(), "what");
  EXPECT_EQ(view.hint(), "how to mend it");
  EXPECT_EQ(view.excerpt(), "…text…");
  EXPECT_EQ(finding_view(finding(1, "x", data::Severity::kWarning)).severity(),
            v1::Finding::SEVERITY_WARNING);
  EXPECT_EQ(finding_view(finding(1, "x", data::Severity::kInfo)).severity(),
            v1::Finding::SEVERITY_INFO);
}

TEST(FindingsViewTest, AReportShowsFirstFindingsAndExactCounts) {
  data::Report report;
  report.format = text::RowFormat::kText;
  report.statistics.rows_good = 90;
  report.statistics.rows_skipped = 10;
  report.statistics.characters = 5000;
  report.statistics.tokens_guess = 1250;
  report.statistics.duplicate_rows = 2;
  report.statistics.longest_row_bytes = 777;
  report.statistics.text_bytes = 5001;
  report.statistics.rows_by_tag.add("math", 40);
  report.statistics.rows_by_language.add("de", 50);
  report.findings = {finding(1, "a", data::Severity::kError),
                     finding(2, "a", data::Severity::kError)};
  report.first_findings = {report.findings[0]};
  report.finding_counts["a"] = 2;
  const v1::File file = report_view(report);
  EXPECT_EQ(file.format(), v1::FILE_FORMAT_TEXT);
  EXPECT_EQ(file.statistics().rows_good(), 90);
  EXPECT_EQ(file.statistics().rows_skipped(), 10);
  EXPECT_EQ(file.statistics().characters(), 5000);
  EXPECT_EQ(file.statistics().tokens_guess(), 1250);
  EXPECT_EQ(file.statistics().duplicate_rows(), 2);
  EXPECT_EQ(file.statistics().longest_row_bytes(), 777);
  EXPECT_EQ(file.statistics().text_bytes(), 5001);
  EXPECT_EQ(file.statistics().rows_by_tag().at("math"), 40);
  EXPECT_EQ(file.statistics().rows_by_language().at("de"), 50);
  ASSERT_EQ(file.findings_size(), 1);
  EXPECT_EQ(file.finding_counts().at("a"), 2);
}

TEST(FindingsViewTest, ThousandsOfTagsStayABoundedReply) {
  data::Report report;
  for (int i = 0; i < 5000; ++i)
    report.statistics.rows_by_tag.add("tag" + std::to_string(i), i + 1);
  const v1::File file = report_view(report);
  EXPECT_EQ(file.statistics().rows_by_tag_size(), 100);
  EXPECT_TRUE(file.statistics().rows_by_tag().contains("tag4999")) << "the largest are kept";
}

}  // namespace
}  // namespace dex::server
