#include "services/data/token_layer.h"

#include "services/base/sha256.h"
#include "tests/unit/services/data/files.h"
#include "tests/unit/services/text/fixtures.h"

namespace dex::data {
namespace {

class TokenLayerTest : public testing::Test {
 protected:
  // The findings of all rows of a file, encoded with the byte tokenizer and a plain template.
  Report run(const std::string& file, text::RowEncoder::Options options = {},
             bool with_bos = false) {
    const auto tokenizer = text::byte_tokenizer(with_bos);
    const auto chat = text::template_of(
        "{{ bos_token if bos else '' }}{% for m in messages %}{% if m.role == 'tool' %}"
        "{{ raise_exception('no tools here') }}{% endif %}{{ m.content }}<|turn|>{% endfor %}");
    const text::RowEncoder encoder(tokenizer.get(), chat.get(), options);
    Findings findings;
    TokenLayer layer(encoder, tokenizer.get(), findings);
    Validator::Options reading;
    reading.on_row = [&](Row row) { layer.check(row); };
    reading.limits.minimum_rows = 1;
    const Report structure = check(file, reading);
    layer.finish(structure.tokenizer_sha256);
    statistics_ = layer.statistics();
    Report report;
    report.findings = findings.list();
    report.finding_counts = findings.counts();
    return report;
  }
  TokenStatistics statistics_;
};

void expect(const Report& report, std::string_view code, Severity severity, int64_t line) {
  const Finding finding = only(report, code);
  EXPECT_EQ(finding.line, line);
  EXPECT_EQ(finding.severity, severity);
  EXPECT_EQ(finding.layer, Layer::kTokens);
  EXPECT_NE(finding.message, "");
}

TEST_F(TokenLayerTest, CountsTokens) {
  run(text_rows(10) + "{\"text\": \"four\", \"tag\": \"t\", \"language\": \"en\"}\n");
  EXPECT_EQ(statistics_.rows_trained, 11);
  EXPECT_EQ(statistics_.sequences, 11);
  EXPECT_EQ(statistics_.tokens, 10 * 6 + 5);  // with eos
  EXPECT_EQ(statistics_.trainable_tokens, 10 * 5 + 4);
  EXPECT_EQ(statistics_.lengths.max(), 6);
  EXPECT_EQ(statistics_.trainable_by_tag.all().at("t"), 4);
  EXPECT_EQ(statistics_.trainable_by_language.all().at("en"), 4);
}

TEST_F(TokenLayerTest, TemplateError) {
  const Report report = run(
      chat_rows(2) +
      R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"},)"
      R"({"role": "tool", "content": "t"}, {"role": "assistant", "content": "a"}]})"
      "\n");
  expect(report, "template_error", Severity::kError, 3);
  EXPECT_NE(only(report, "template_error").message.find("no tools here"), std::string::npos);
  EXPECT_EQ(statistics_.dropped.at("template_error").lines, std::vector<int64_t>{3});
}

TEST_F(TokenLayerTest, DoubledBos) {
  const Report report =
      run(text_rows(0) + "{\"input_ids\": [256, 256, 5], \"labels\": [-100, -100, 5]}\n", {}, true);
  expect(report, "doubled_bos", Severity::kError, 1);
}

TEST_F(TokenLayerTest, TokenizerMismatch) {
  const std::string row = "{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n";
  const Report other = run("{\"tokenizer_sha256\": \"" + std::string(64, '0') + "\"}\n" + row);
  expect(other, "tokenizer_mismatch", Severity::kError, 1);
  const std::string own = base::sha256_hex(text::byte_tokenizer_json(false));
  EXPECT_TRUE(run("{\"tokenizer_sha256\": \"" + own + "\"}\n" + row).findings.empty());
}

TEST_F(TokenLayerTest, TokenIdOutOfRange) {
  expect(run("{\"input_ids\": [1, 259], \"labels\": [1, 259]}\n"), "token_id_out_of_range",
         Severity::kError, 1);
}

// A row of ids of which the first `targets` are trained.
std::string ids_row(int size, int targets) {
  std::string ids, labels;
  for (int i = 0; i < size; ++i) {
    ids += i == 0 ? "5" : ", 5";
    labels += std::string(i == 0 ? "" : ", ") + (i < targets ? "5" : "-100");
  }
  return "{\"input_ids\": [" + ids + "], \"labels\": [" + labels + "]}\n";
}

TEST_F(TokenLayerTest, NoTrainableTokensAndTruncated) {
  const std::string rows = ids_row(30, 3) + ids_row(52, 52);
  const Report left = run(rows, {.max_seq_length = 20, .truncation = text::Truncation::kLeft});
  expect(left, "no_trainable_tokens", Severity::kError, 1);
  expect(left, "truncated", Severity::kWarning, 2);
  EXPECT_EQ(only(left, "truncated").message,
            "32 of the row's 52 tokens are cut off, 32 of them trained ones");
  EXPECT_EQ(statistics_.truncated_rows, 1);
  EXPECT_EQ(statistics_.truncated_tokens, 32);
  EXPECT_EQ(statistics_.truncated_trainable_tokens, 32);
  EXPECT_EQ(statistics_.truncated_lines, std::vector<int64_t>{2});
  EXPECT_EQ(statistics_.rows_dropped(), 1);

  run(rows, {.max_seq_length = 20});
  EXPECT_EQ(statistics_.truncated_tokens, 10 + 32);
  EXPECT_EQ(statistics_.truncated_trainable_tokens, 32);
  EXPECT_EQ(statistics_.rows_dropped(), 0);
}

// method.md §12: a prompt that is longer than the window costs no row its answer.
TEST_F(TokenLayerTest, ALongPromptLosesItsBeginning) {
  const Report report =
      run("{\"prompt\": \"" + std::string(50, 'p') + "\", \"completion\": \"c\"}\n",
          {.max_seq_length = 20});
  EXPECT_EQ(only(report, "truncated").message,
            "32 of the row's 52 tokens are cut off, 0 of them trained ones");
  EXPECT_EQ(statistics_.trainable_tokens, 2);
  EXPECT_EQ(statistics_.rows_dropped(), 0);
}

TEST_F(TokenLayerTest, LongerThanContext) {
  const Report report = run("{\"text\": \"" + std::string(50, 'c') + "\"}\n",
                            {.max_seq_length = 20, .truncation = text::Truncation::kError});
  expect(report, "longer_than_context", Severity::kError, 1);
}

TEST_F(TokenLayerTest, LengthOutlier) {
  const Report report = run(text_rows(30) + "{\"text\": \"" + std::string(500, 'x') + "\"}\n");
  expect(report, "length_outlier", Severity::kInfo, 31);
}

TEST_F(TokenLayerTest, ChunksAreMoreSequencesThanRows) {
  run("{\"text\": \"" + std::string(100, 'c') + "\"}\n", {.max_seq_length = 20});
  EXPECT_EQ(statistics_.rows_trained, 1);
  EXPECT_EQ(statistics_.sequences, 6);
  EXPECT_EQ(statistics_.trainable_tokens, 100);
  EXPECT_EQ(statistics_.lengths.max(), 101);
}

}  // namespace
}  // namespace dex::data
