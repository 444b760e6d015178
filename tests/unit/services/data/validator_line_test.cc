// Line codes of api.md §5: each with line, byte, path and severity.
#include "tests/unit/services/data/files.h"

namespace dex::data {
namespace {

using std::literals::operator""s;

// Twelve good rows, then the line: the report, and the byte where the line begins.
struct Case {
  Report report;
  int64_t begin;
};
Case after_good_rows(const std::string& line, Validator::Options options = {}) {
  const std::string good = text_rows(12);
  return {check(good + line + "\n", std::move(options)), static_cast<int64_t>(good.size())};
}

void expect_at(const Case& c, std::string_view code, Severity severity, int64_t offset,
               const std::string& path) {
  const Finding finding = only(c.report, code);
  EXPECT_EQ(finding.line, 13) << code;
  EXPECT_EQ(finding.byte_offset - c.begin, offset) << code;
  EXPECT_EQ(finding.json_path, path) << code;
  EXPECT_EQ(finding.severity, severity) << code;
  EXPECT_EQ(finding.layer, Layer::kStructure);
  EXPECT_NE(finding.message, "");
  EXPECT_EQ(c.report.ready, severity != Severity::kError) << c.report.message;
}

TEST(ValidatorLineTest, LineTooLong) {
  const Case c = after_good_rows("{\"text\": \"" + std::string(200, 'x') + "\"}",
                                 {.limits = {.line_bytes = 100}});
  expect_at(c, "line_too_long", Severity::kError, 0, "");
  EXPECT_NE(only(c.report, "line_too_long").message.find("212 bytes, at most 100"),
            std::string::npos);
}

TEST(ValidatorLineTest, BlankLine) {
  expect_at(after_good_rows(" \t"), "blank_line", Severity::kWarning, 0, "");
}

TEST(ValidatorLineTest, NulByte) {
  expect_at(after_good_rows("{\"text\": \"a\0b\"}"s), "nul_byte", Severity::kError, 11, "");
}

TEST(ValidatorLineTest, InvalidJson) {
  const Case c = after_good_rows(R"({"text": "a" "b"})");
  expect_at(c, "invalid_json", Severity::kError, 13, "$.text");
  EXPECT_EQ(only(c.report, "invalid_json").message, "column 14: expected ',' or '}', found '\"'");
  EXPECT_EQ(only(c.report, "invalid_json").excerpt, R"({"text": "a" "b"})");
}

TEST(ValidatorLineTest, NotAnObject) {
  expect_at(after_good_rows(" [\"text\"]"), "not_an_object", Severity::kError, 1, "$");
  EXPECT_NE(only(after_good_rows("\"text\"").report, "not_an_object").message.find("a string"),
            std::string::npos);
}

TEST(ValidatorLineTest, DuplicateKey) {
  expect_at(after_good_rows(R"({"text": "a", "text": "b"})"), "duplicate_key", Severity::kError, 14,
            "$.text");
}

TEST(ValidatorLineTest, NestingTooDeep) {
  expect_at(
      after_good_rows("{\"text\": " + std::string(32, '[') + std::string(32, ']') + "}"),
      "nesting_too_deep", Severity::kError, 9 + 31, "$.text" + [] {
        std::string path;
        for (int i = 0; i < 31; ++i) path += "[0]";
        return path;
      }());
}

TEST(ValidatorLineTest, MixedFormat) {
  const Case c = after_good_rows(R"({"messages": []})");
  expect_at(c, "mixed_format", Severity::kError, 0, "$");
  EXPECT_EQ(only(c.report, "mixed_format").message,
            "a row of format chat in a file of format text");
}

TEST(ValidatorLineTest, MissingKey) {
  const Case c = after_good_rows(R"({"txt": "a"})");
  expect_at(c, "missing_key", Severity::kError, 0, "$");
  EXPECT_EQ(only(c.report, "missing_key").message, "found the keys \"txt\", expected \"text\"");
}

TEST(ValidatorLineTest, WrongType) {
  const Case c = after_good_rows(R"({"id": 7, "text": ["a"]})");
  expect_at(c, "wrong_type", Severity::kError, 18, "$.text");
  EXPECT_EQ(only(c.report, "wrong_type").message, "text is an array, expected a string");
  expect_at(after_good_rows(R"({"tag": 5, "text": "a"})"), "wrong_type", Severity::kError, 8,
            "$.tag");
}

TEST(ValidatorLineTest, UnknownKey) {
  const Case c = after_good_rows(R"({"text": "a", "langage": "en"})");
  expect_at(c, "unknown_key", Severity::kWarning, 25, "$.langage");
  EXPECT_EQ(only(c.report, "unknown_key").hint, "did you mean \"language\"?");
}

TEST(ValidatorLineTest, LoneSurrogate) {
  expect_at(after_good_rows(R"({"text": "ab\ud83d!"})"), "lone_surrogate", Severity::kError, 12,
            "$.text");
}

TEST(ValidatorLineTest, ReplacementCharacter) {
  expect_at(after_good_rows("{\"text\": \"caf\xEF\xBF\xBD\"}"), "replacement_character",
            Severity::kWarning, 13, "$.text");
  EXPECT_EQ(count_of(after_good_rows(R"({"text": "caf\ufffd"})").report, "replacement_character"),
            1);
}

TEST(ValidatorLineTest, DuplicateRow) {
  const Case c = after_good_rows(R"({"id": "other", "text":  "row 4"})");
  expect_at(c, "duplicate_row", Severity::kWarning, 0, "");
  EXPECT_EQ(only(c.report, "duplicate_row").message, "the row says the same as line 5");
  EXPECT_EQ(c.report.statistics.duplicate_rows, 1);
  EXPECT_EQ(c.report.statistics.rows_good, 13);
}

TEST(ValidatorLineTest, SpecialTokenInText) {
  expect_at(after_good_rows(R"({"text": "a <|im_end|> b"})"), "special_token_in_text",
            Severity::kWarning, 12, "$.text");
}

TEST(ValidatorLineTest, SecretLikeTextNeverShowsTheSecret) {
  const std::string secret = "AKIAIOSFODNN7EXAMPLE";
  const Case c = after_good_rows(R"({"text": "key )" + secret + R"("})");
  expect_at(c, "secret_like_text", Severity::kWarning, 14, "$.text");
  const Finding finding = only(c.report, "secret_like_text");
  for (const std::string& text : {finding.message, finding.hint, finding.excerpt}) {
    EXPECT_EQ(text.find(secret), std::string::npos);
  }
  EXPECT_NE(finding.message.find("AWS"), std::string::npos);
}

TEST(ValidatorLineTest, OneRowCanHaveManyFaults) {
  const Report report = after_good_rows(R"({"tag": 1, "language": 2, "text": "", "x": 0})").report;
  EXPECT_EQ(count_of(report, "wrong_type"), 2);
  EXPECT_EQ(count_of(report, "empty_content"), 1);
  EXPECT_EQ(count_of(report, "unknown_key"), 1);
  EXPECT_EQ(report.statistics.rows_skipped, 1);
}

}  // namespace
}  // namespace dex::data
