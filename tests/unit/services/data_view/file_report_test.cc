#include "services/data_view/file_report.h"

#include <gtest/gtest.h>

namespace dex::data_view {
namespace {

TEST(FileReportTest, FormatsGoBothWays) {
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

TEST(FileReportTest, AFindingKeepsAllThatHelpsToRepairIt) {
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
  EXPECT_EQ(view.layer(), v1::Finding::LAYER_STRUCTURE);
}

TEST(FileReportTest, AReportShowsFirstFindingsAndExactCounts) {
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

TEST(FileReportTest, ThousandsOfTagsStayABoundedReply) {
  data::Report report;
  for (int i = 0; i < 5000; ++i)
    report.statistics.rows_by_tag.add("tag" + std::to_string(i), i + 1);
  const v1::File file = report_view(report);
  EXPECT_EQ(file.statistics().rows_by_tag_size(), 100);
  EXPECT_TRUE(file.statistics().rows_by_tag().contains("tag4999")) << "the largest are kept";
}

TEST(FileReportTest, FiguresOfBothLayersAreTold) {
  data::FileReport report;
  report.structure.format = text::RowFormat::kText;
  report.structure.statistics.rows_good = 4;
  report.structure.statistics.rows_skipped = 1;
  report.tokens.emplace();
  for (const int64_t length : {10, 20, 30, 400}) report.tokens->lengths.add(length);
  report.tokens->rows_trained = 3;
  report.tokens->tokens = 460;
  report.tokens->trainable_tokens = 450;
  report.tokens->trainable_by_tag.add("math", 7);
  report.dropped["no_trainable_tokens"] = {.rows = 1, .lines = {9}};
  report.finding_counts["no_trainable_tokens"] = 1;
  report.verdict = base::failed_precondition("FILE_INVALID", "too many");
  v1::RowEncoding encoding;
  encoding.set_max_seq_length(512);
  const auto view = statistics_view(report, encoding);
  EXPECT_EQ(view.rows_good(), 4);
  EXPECT_EQ(view.tokens().encoding().max_seq_length(), 512);
  EXPECT_EQ(view.tokens().rows_trained(), 3);
  EXPECT_EQ(view.tokens().trainable_tokens(), 450);
  EXPECT_EQ(view.tokens().min(), 10);
  EXPECT_EQ(view.tokens().p50(), 20);
  EXPECT_EQ(view.tokens().max(), 400);
  EXPECT_EQ(view.tokens().mean(), 115);
  EXPECT_EQ(view.tokens().dropped().at("no_trainable_tokens").lines(0), 9);
  EXPECT_EQ(view.tokens().trainable_by_tag().at("math"), 7);
  int64_t rows = 0;
  for (const auto& bucket : view.tokens().histogram()) rows += bucket.rows();
  EXPECT_EQ(rows, 4);
  const auto verdict = verdict_view(report);
  EXPECT_EQ(verdict.state(), v1::FILE_STATE_INVALID);
  EXPECT_EQ(verdict.message(), "too many");
  EXPECT_EQ(verdict.finding_counts().at("no_trainable_tokens"), 1);
  EXPECT_FALSE(statistics_view(data::FileReport(), {}).has_tokens());
}

TEST(FileReportTest, AnEndlessRowStaysABoundedReply) {
  data::PreviewedRow row;
  row.rendered.assign(3 << 20, 'x');
  row.encoded.ids.assign(100'000, 1);
  row.encoded.weights.assign(100'000, 1);
  row.encoded.trainable_tokens = 99'999;
  const auto view = preview_view(row, nullptr);
  EXPECT_LT(view.ByteSizeLong(), 1'600'000U) << "two of them and what comes before fit 4 MiB";
  EXPECT_EQ(view.trainable_tokens(), 99'999) << "counts are of the whole row";
}

}  // namespace
}  // namespace dex::data_view
