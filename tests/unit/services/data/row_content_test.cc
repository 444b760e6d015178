// Content codes of api.md §5, and what good rows become.
#include <memory>

#include "tests/unit/services/data/files.h"

namespace dex::data {
namespace {

struct Read {
  std::vector<Row> rows;
  Report report;
};

Read read(const std::string& line, std::optional<text::RowFormat> format = std::nullopt) {
  Read result;
  Validator::Options options;
  options.format = format;
  options.on_row = [&](Row row) { result.rows.push_back(std::move(row)); };
  options.limits.minimum_rows = 1;
  result.report = check(line + "\n", options);
  return result;
}

std::string chat(const std::string& messages) {
  return "{\"messages\": [" + messages + "]}";
}

constexpr const char* kUser = R"({"role": "user", "content": "u"}, )";
constexpr const char* kAnswer = R"({"role": "assistant", "content": "a"})";

// The finding of `code` in a chat of these messages: severity and path.
void expect_chat(const std::string& messages, std::string_view code, Severity severity,
                 const std::string& path, const std::string& at) {
  const std::string line = chat(messages);
  const Read result = read(line);
  const Finding finding = only(result.report, code);
  EXPECT_EQ(finding.severity, severity) << code;
  EXPECT_EQ(finding.json_path, path) << code;
  EXPECT_EQ(finding.line, 1);
  EXPECT_EQ(line.compare(finding.byte_offset, at.size(), at), 0)
      << code << " at " << finding.byte_offset;
  EXPECT_EQ(result.rows.empty(), severity == Severity::kError) << code;
}

TEST(RowContentTest, ReadsAChat) {
  const Read result = read(
      R"({"id": 12, "tag": "t", "language": "de", "messages": [{"role": "system", "content": "s"},)"
      R"({"role": "user", "name": "eva", "content": [{"type": "text", "text": "u1"}, {"type": "text", "text": "\u00fc"}]},)"
      R"({"role": "assistant", "content": "a", "weight": 0.5}]})");
  ASSERT_EQ(result.rows.size(), 1u) << result.report.message;
  const Row& row = result.rows[0];
  EXPECT_EQ(row.id, "12");
  EXPECT_EQ(row.tag, "t");
  EXPECT_EQ(row.language, "de");
  ASSERT_EQ(row.content.messages.size(), 3u);
  EXPECT_EQ(row.content.messages[1].content, "u1ü");
  EXPECT_EQ(row.content.messages[1].name, "eva");
  EXPECT_EQ(row.content.messages[2].weight, 0.5);
  EXPECT_EQ(row.text_bytes, 6);
  EXPECT_TRUE(result.report.findings.empty());
}

TEST(RowContentTest, UnknownRole) {
  expect_chat(std::string(R"({"role": "human", "content": "u"}, )") + kAnswer, "unknown_role",
              Severity::kError, "$.messages[0].role", "\"human\"");
  const Finding finding =
      only(read(chat(std::string(R"({"role": "human", "content": "u"}, )") + kAnswer)).report,
           "unknown_role");
  EXPECT_NE(finding.message.find("system, developer, user, assistant or tool"), std::string::npos);
  EXPECT_EQ(finding.hint, "did you mean \"user\"?");
}

TEST(RowContentTest, RoleOrder) {
  expect_chat(std::string(kUser) + kUser + kAnswer, "role_order", Severity::kWarning,
              "$.messages[1].role", "[");
  for (
      const char* messages :
      {R"({"role": "assistant", "content": "a"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"})",
       R"({"role": "user", "content": "u"}, {"role": "system", "content": "s"}, {"role": "assistant", "content": "a"})",
       R"({"role": "user", "content": "u"}, {"role": "tool", "content": "t"}, {"role": "assistant", "content": "a"})"}) {
    EXPECT_EQ(count_of(read(chat(messages)).report, "role_order"), 1) << messages;
  }
  EXPECT_EQ(
      count_of(read(chat(R"({"role": "developer", "content": "d"}, {"role": "user", "content": "u"},
      {"role": "assistant", "content": "a"}, {"role": "tool", "content": "t"}, {"role": "tool", "content": "t"},
      {"role": "assistant", "content": "a"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"})"))
                   .report,
               "role_order"),
      0);
}

TEST(RowContentTest, EmptyContent) {
  expect_chat(std::string(R"({"role": "user", "content": " \n"}, )") + kAnswer, "empty_content",
              Severity::kError, "$.messages[0].content", "\" \\n\"");
  EXPECT_EQ(count_of(read(chat("")).report, "empty_content"), 1);
  EXPECT_EQ(only(read(R"({"prompt": "p", "completion": ""})").report, "empty_content").json_path,
            "$.completion");
  EXPECT_EQ(only(read(R"({"text": ""})").report, "empty_content").json_path, "$.text");
  EXPECT_EQ(only(read(R"({"input_ids": [], "labels": []})").report, "empty_content").json_path,
            "$.input_ids");
  EXPECT_EQ(read(R"({"prompt": "", "completion": "c"})").rows.size(),
            1u);  // nothing before it is fine
}

TEST(RowContentTest, NoAssistantMessageAndEndsWithoutAssistant) {
  expect_chat(R"({"role": "user", "content": "u"})", "no_assistant_message", Severity::kError,
              "$.messages", "[");
  expect_chat(std::string(kUser) + kAnswer + R"(, {"role": "user", "content": "u"})",
              "ends_without_assistant", Severity::kWarning, "$.messages[2]", "[");
}

TEST(RowContentTest, Weights) {
  for (const char* weight : {"1.5", "-0.1", "\"1\"", "null", "true"}) {
    expect_chat(
        std::string(kUser) + R"({"role": "assistant", "content": "a", "weight": )" + weight + "}",
        "weight_invalid", Severity::kError, "$.messages[1].weight", weight);
  }
  expect_chat(std::string(R"({"role": "user", "content": "u", "weight": 1}, )") + kAnswer,
              "weight_on_non_assistant", Severity::kWarning, "$.messages[0].weight", "1");
  expect_chat(std::string(kUser) + R"({"role": "assistant", "content": "a", "weight": 0})",
              "all_weights_zero", Severity::kError, "$.messages", "[");
}

TEST(RowContentTest, WrongMessages) {
  EXPECT_EQ(only(read(R"({"messages": "hi"})").report, "wrong_type").json_path, "$.messages");
  expect_chat("5, " + std::string(kAnswer), "wrong_type", Severity::kError, "$.messages[0]", "5");
  expect_chat(std::string(R"({"role": 1, "content": "u"}, )") + kAnswer, "wrong_type",
              Severity::kError, "$.messages[0].role", "1");
  expect_chat(std::string(kUser) + R"({"role": "assistant", "content": null, "tool_calls": []})",
              "wrong_type", Severity::kError, "$.messages[1].content", "null");
  expect_chat(
      std::string(R"({"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}, )") +
          kAnswer,
      "wrong_type", Severity::kError, "$.messages[0].content[0]", "{\"type\"");
  expect_chat(std::string(R"({"content": "u"}, )") + kAnswer, "missing_key", Severity::kError,
              "$.messages[0].role", "{\"content\"");
  expect_chat(std::string(R"({"role": "user"}, )") + kAnswer, "missing_key", Severity::kError,
              "$.messages[0].content", "{\"role\"");
  expect_chat(std::string(R"({"role": "user", "contents": "u", "content": "u"}, )") + kAnswer,
              "unknown_key", Severity::kWarning, "$.messages[0].contents", "\"u\"");
}

TEST(RowContentTest, ReadsPromptAndCompletion) {
  const Read result = read(R"({"prompt": "p", "completion": "c"})");
  ASSERT_EQ(result.rows.size(), 1u);
  EXPECT_EQ(result.rows[0].content.prompt, "p");
  EXPECT_EQ(result.rows[0].content.completion, "c");
  EXPECT_EQ(only(read(R"({"prompt": "p"})").report, "missing_key").json_path, "$.completion");
}

TEST(RowContentTest, ReadsTokensWithLabelsOrWeights) {
  const Read labels = read(R"({"input_ids": [5, 6, 7], "labels": [-100, 6, -100]})");
  ASSERT_EQ(labels.rows.size(), 1u) << labels.report.message;
  EXPECT_EQ(labels.rows[0].content.loss_weights, (std::vector<float>{0, 1, 0}));
  const Read weights = read(R"({"input_ids": [5, 6], "loss_weights": [0, 0.25]})");
  ASSERT_EQ(weights.rows.size(), 1u);
  EXPECT_EQ(weights.rows[0].content.input_ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(weights.rows[0].content.loss_weights, (std::vector<float>{0, 0.25}));
}

TEST(RowContentTest, TokensWithFaults) {
  const auto expect = [](const std::string& line, std::string_view code, const std::string& path) {
    const Read result = read(line);
    EXPECT_EQ(only(result.report, code).json_path, path) << line;
    EXPECT_TRUE(result.rows.empty());
  };
  expect(R"({"input_ids": [1, 2], "labels": [1]})", "length_mismatch", "$.labels");
  expect(R"({"input_ids": [1, 2], "loss_weights": [1, 1, 1]})", "length_mismatch",
         "$.loss_weights");
  expect(R"({"input_ids": [1, 2], "labels": [-100, -100]})", "all_weights_zero", "$.labels");
  expect(R"({"input_ids": [1, 2], "loss_weights": [0, 0]})", "all_weights_zero", "$.loss_weights");
  expect(R"({"input_ids": [1, 2], "labels": [2, 3]})", "weight_invalid", "$.labels[0]");
  expect(R"({"input_ids": [1, 2], "loss_weights": [0, -1]})", "weight_invalid",
         "$.loss_weights[1]");
  expect(R"({"input_ids": [1, 2.5], "labels": [1, 2]})", "wrong_type", "$.input_ids[1]");
  expect(R"({"input_ids": [1, -2], "labels": [1, 2]})", "wrong_type", "$.input_ids[1]");
  expect(R"({"input_ids": [1, 99999999999], "labels": [1, 2]})", "wrong_type", "$.input_ids[1]");
  expect(R"({"input_ids": "1 2", "labels": [1, 2]})", "wrong_type", "$.input_ids");
  expect(R"({"input_ids": [1, 2]})", "missing_key", "$.labels");
  expect(R"({"input_ids": [1], "labels": [1], "loss_weights": [1]})", "wrong_type",
         "$.loss_weights");
}

TEST(RowContentTest, ReadsTheHeaderOfATokensFile) {
  const std::string hash(64, 'a');
  const Read result =
      read("{\"tokenizer_sha256\": \"" + hash + "\"}\n{\"input_ids\": [1, 2], \"labels\": [1, 2]}");
  EXPECT_TRUE(result.report.ready) << result.report.message;
  EXPECT_EQ(result.report.tokenizer_sha256, hash);
  EXPECT_EQ(result.report.statistics.rows_good, 1);
  EXPECT_EQ(result.report.statistics.rows_skipped, 0);
  const Read bad =
      read("{\"tokenizer_sha256\": \"xyz\"}\n{\"input_ids\": [1, 2], \"labels\": [1, 2]}");
  EXPECT_FALSE(bad.report.ready);
  EXPECT_EQ(only(bad.report, "wrong_type").json_path, "$.tokenizer_sha256");
}

TEST(RowContentTest, AGivenFormatIsHeldTo) {
  const Read result = read(R"({"text": "a"})", text::RowFormat::kChat);
  EXPECT_EQ(count_of(result.report, "mixed_format"), 1);
  const Read both =
      read(R"({"text": "a", "prompt": "p", "completion": "c"})", text::RowFormat::kText);
  ASSERT_EQ(both.rows.size(), 1u);
  EXPECT_EQ(both.rows[0].content.text, "a");
  EXPECT_EQ(count_of(both.report, "unknown_key"), 2);
}

}  // namespace
}  // namespace dex::data
