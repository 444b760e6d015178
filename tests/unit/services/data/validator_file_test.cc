// File codes of api.md §5: each with its place, and what it means for the verdict.
#include "tests/unit/services/data/files.h"

namespace dex::data {
namespace {

using std::literals::operator""s;

TEST(ValidatorFileTest, AcceptsAGoodFile) {
  const Report report = check(text_rows(12));
  EXPECT_TRUE(report.ready) << report.message;
  EXPECT_EQ(report.format, text::RowFormat::kText);
  EXPECT_EQ(report.statistics.rows_good, 12);
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.message, "");
}

TEST(ValidatorFileTest, AcceptsAFileWithoutAFinalLineEnd) {
  std::string file = text_rows(12);
  file.pop_back();
  const Report report = check(file);
  EXPECT_TRUE(report.ready) << report.message;
  EXPECT_EQ(report.statistics.rows_good, 12);
  EXPECT_TRUE(report.findings.empty());
}

TEST(ValidatorFileTest, RefusesEmptyFiles) {
  for (const std::string& file :
       {""s, "\n"s, " \r\n\t\n"s, "\xEF\xBB\xBF"s, std::string(100, '\n')}) {
    const Report report = check(file);
    EXPECT_FALSE(report.ready);
    EXPECT_EQ(only(report, "empty_file").severity, Severity::kError);
    EXPECT_EQ(count_of(report, "too_few_rows"), 0);
  }
}

TEST(ValidatorFileTest, NamesUtf16And32) {
  std::string little, big, little32 = "\xFF\xFE\0\0"s;
  for (const char c : text_rows(12))
    little += c, little += '\0', big += '\0', big += c, little32 += c + "\0\0\0"s;
  for (const std::string& file : {"\xFF\xFE"s + little, "\xFE\xFF"s + big, little, big, little32}) {
    const Report report = check(file);
    EXPECT_FALSE(report.ready);
    EXPECT_EQ(report.finding_counts.size(), 1u);
    EXPECT_NE(only(report, "encoding_utf16").hint.find("iconv -f UTF-"), std::string::npos);
  }
}

TEST(ValidatorFileTest, NamesCompressedFiles) {
  for (const std::string& head : {"\x1F\x8B\x08\0\0\0\0\0"s, "PK\x03\x04\x14\0\0\0"s,
                                  "\x28\xB5\x2F\xFD\0\0\0\0"s, "BZh91AY&SY"s,
                                  "\xFD"
                                  "7zXZ\0\0\x04"s}) {
    const Report report = check(head + std::string(100000, '\x07'));
    EXPECT_FALSE(report.ready);
    EXPECT_EQ(report.finding_counts.size(), 1u);
    EXPECT_NE(only(report, "compressed_file").hint, "");
  }
}

TEST(ValidatorFileTest, ReportsBomAndCarriageReturnsByNameAndAcceptsThem) {
  std::string file = "\xEF\xBB\xBF";
  for (const char c : text_rows(12)) file += c == '\n' ? "\r\n" : std::string(1, c);
  file += "{\"text\": 5}\r\n";
  const Report report = check(file, {.skip_budget_ratio = 0.1});
  EXPECT_TRUE(report.ready) << report.message;
  EXPECT_EQ(only(report, "bom_removed").severity, Severity::kInfo);
  EXPECT_EQ(only(report, "crlf_line_endings").line, 1);
  // Offsets count the mark and the carriage returns.
  EXPECT_EQ(file[only(report, "wrong_type").byte_offset], '5');
}

TEST(ValidatorFileTest, NamesOneJsonArray) {
  for (const std::string& file :
       {"[{\"text\": \"a\"}, {\"text\": \"b\"}]"s, "[\n{\"text\": \"a\"},\n"s, "  [ \n  {\n"s}) {
    const Report report = check(file);
    EXPECT_FALSE(report.ready);
    EXPECT_EQ(report.finding_counts.size(), 1u);
    EXPECT_EQ(only(report, "json_array_file").hint, "jq -c '.[]' IN > OUT");
  }
  EXPECT_EQ(count_of(check("[\"a\", \"b\"]\n[\"c\"]\n"), "json_array_file"), 0);
  EXPECT_EQ(count_of(check("[\"a\", \"b\"]\n[\"c\"]\n"), "not_an_object"), 2);
}

TEST(ValidatorFileTest, NamesPrettyPrintedJson) {
  for (const std::string& file :
       {"{\n  \"text\": \"a\"\n}\n{\n  \"text\": \"b\"\n}\n"s,
        "{\"messages\": [\n  {\"role\": \"user\"}\n]}\n"s, "\n{ \n\"text\": \"a\"}\n"s}) {
    const Report report = check(file);
    EXPECT_FALSE(report.ready);
    EXPECT_EQ(only(report, "pretty_printed_json").hint, "jq -c . IN > OUT");
    EXPECT_EQ(count_of(report, "invalid_json"), 0);
  }
}

TEST(ValidatorFileTest, AFirstLineCutShortAmongGoodOnesIsOneBadRow) {
  const Report report = check("{\"text\": [\n" + text_rows(20), {.skip_budget_ratio = 0.1});
  EXPECT_TRUE(report.ready) << report.message;
  EXPECT_EQ(only(report, "invalid_json").line, 1);
  const Report in_string = check("{\"text\": \"abc\nmore\n" + text_rows(20));
  EXPECT_EQ(count_of(in_string, "invalid_json"), 2);
}

TEST(ValidatorFileTest, NamesATruncatedLastLine) {
  const std::string good = text_rows(12);
  for (const std::string& last :
       {"{\"text\": \"cut o"s, "{\"text\": "s, "{"s, "{\"text\": \"caf\xC3"s}) {
    const Report report = check(good + last, {.skip_budget_ratio = 0.1});
    EXPECT_FALSE(report.ready) << last;
    const Finding finding = only(report, "truncated_last_line");
    EXPECT_EQ(finding.line, 13);
    EXPECT_EQ(finding.severity, Severity::kError);
    EXPECT_EQ(report.finding_counts.size(), 1u);
  }
  EXPECT_EQ(count_of(check("{\"text\": \"only"), "truncated_last_line"), 1);
  EXPECT_EQ(count_of(check(good + "{\"text\": oops}"), "invalid_json"), 1);  // wrong, not cut off
}

TEST(ValidatorFileTest, ReportsInvalidUtf8WithItsByteAndReadsOn) {
  const std::string file = text_rows(12) + "{\"text\": \"caf\xE9\"}\n" + "{\"text\": 7}\n";
  const Report report = check(file, {.skip_budget_ratio = 0.1});
  EXPECT_FALSE(report.ready);
  const Finding finding = only(report, "invalid_utf8");
  EXPECT_EQ(finding.line, 13);
  EXPECT_EQ(file[finding.byte_offset], '\xE9');
  EXPECT_NE(finding.message.find("0xE9"), std::string::npos);
  EXPECT_EQ(only(report, "wrong_type").line, 14);
}

TEST(ValidatorFileTest, RefusesFilesThatAreTooLargeOrHaveTooManyRows) {
  const Report large = check(text_rows(50), {.limits = {.file_bytes = 500}});
  EXPECT_FALSE(large.ready);
  EXPECT_EQ(count_of(large, "file_too_large"), 1);
  const Report many = check(text_rows(50), {.limits = {.rows = 20}});
  EXPECT_FALSE(many.ready);
  EXPECT_EQ(only(many, "too_many_rows").line, 21);
  EXPECT_EQ(many.statistics.rows_good, 20);
  EXPECT_TRUE(check(text_rows(20), {.limits = {.rows = 20}}).ready);
}

TEST(ValidatorFileTest, NeedsTenGoodRows) {
  const Report report = check(text_rows(9));
  EXPECT_FALSE(report.ready);
  EXPECT_NE(only(report, "too_few_rows").message.find("9 good rows, at least 10"),
            std::string::npos);
  EXPECT_TRUE(check(text_rows(10)).ready);
}

TEST(ValidatorFileTest, NamesUnknownFormats) {
  std::string file;
  for (int i = 0; i < 12; ++i)
    file += R"({"instruction": "do", "output": "done"})"
            "\n";
  const Report report = check(file);
  EXPECT_FALSE(report.ready);
  const Finding finding = only(report, "unknown_format");
  EXPECT_EQ(finding.line, 1);
  EXPECT_NE(finding.message.find("\"instruction\", \"output\""), std::string::npos);
  EXPECT_EQ(count_of(report, "missing_key"), 12);
  EXPECT_NE(of_code(report, "missing_key")[0].hint.find("jq -c '{prompt:"), std::string::npos);
  EXPECT_EQ(report.format, std::nullopt);
}

TEST(ValidatorFileTest, SkipsBadRowsWithinTheBudgetOnly) {
  const std::string file =
      text_rows(95) + "{\"text\": 1}\n{\"text\": 2}\n{\"text\": 3}\n{\"text\": 4}\n{\"text\": 5}\n";
  const Report none = check(file);
  EXPECT_FALSE(none.ready);
  EXPECT_EQ(none.message, "5 of 100 rows are bad (5.00 %), skip_budget_ratio allows 0.00 %");
  EXPECT_TRUE(check(file, {.skip_budget_ratio = 0.05}).ready);
  EXPECT_FALSE(check(file, {.skip_budget_ratio = 0.049}).ready);
  EXPECT_EQ(none.statistics.rows_skipped, 5);
}

TEST(ValidatorFileTest, GivesTheSameReportHoweverTheBytesArrive) {
  std::string file = "\xEF\xBB\xBF" + text_rows(11) +
                     "\r\n{\"text\": \"\xF0\x9F\x98\x80\"}\r\n{\"text\": 5}\n" + text_rows(1) +
                     "[1]\n{\"text\": \"\xFF\"}\n{\"tex";
  const Report whole = check(file);
  for (const size_t piece : {1, 2, 3, 7, 64}) {
    Validator validator({});
    for (size_t at = 0; at < file.size(); at += piece)
      validator.feed(std::string_view(file).substr(at, piece));
    const Report pieces = validator.finish();
    EXPECT_EQ(pieces.finding_counts, whole.finding_counts);
    ASSERT_EQ(pieces.findings.size(), whole.findings.size());
    for (size_t i = 0; i < whole.findings.size(); ++i) {
      EXPECT_EQ(pieces.findings[i].byte_offset, whole.findings[i].byte_offset);
      EXPECT_EQ(pieces.findings[i].message, whole.findings[i].message);
    }
  }
}

TEST(ValidatorFileTest, HandsOutGoodRowsInOrder) {
  std::vector<int64_t> lines;
  Validator::Options options;
  options.on_row = [&](Row row) { lines.push_back(row.line); };
  check("{\"text\": 1}\n\n" + text_rows(3) + "x\n" + text_rows(2, 3), options);
  EXPECT_EQ(lines, (std::vector<int64_t>{3, 4, 5, 7, 8}));
}

}  // namespace
}  // namespace dex::data
