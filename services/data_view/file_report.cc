#include "services/data_view/file_report.h"

#include <algorithm>

#include "services/text/detokenizer.h"
#include "services/text/utf8.h"

namespace dex::data_view {

namespace {

constexpr size_t kNames = 100;
constexpr size_t kShownTokens = 32'768;
constexpr size_t kShownBytes = 512 << 10;

v1::Finding::Severity severity_of(data::Severity severity) {
  switch (severity) {
    case data::Severity::kError:
      return v1::Finding::SEVERITY_ERROR;
    case data::Severity::kWarning:
      return v1::Finding::SEVERITY_WARNING;
    case data::Severity::kInfo:
      return v1::Finding::SEVERITY_INFO;
  }
  return v1::Finding::SEVERITY_ERROR;
}

void fill(const data::Statistics& from, v1::FileStatistics& to) {
  to.set_rows_good(from.rows_good);
  to.set_rows_skipped(from.rows_skipped);
  to.set_characters(from.characters);
  to.set_tokens_guess(from.tokens_guess);
  to.set_duplicate_rows(from.duplicate_rows);
  to.set_longest_row_bytes(from.longest_row_bytes);
  to.set_text_bytes(from.text_bytes);
  to.set_messages(from.messages);
  to.set_most_messages(from.most_messages);
  for (const auto& [tag, rows] : from.rows_by_tag.largest(kNames))
    (*to.mutable_rows_by_tag())[tag] = rows;
  for (const auto& [language, rows] : from.rows_by_language.largest(kNames))
    (*to.mutable_rows_by_language())[language] = rows;
}

void fill_lengths(const data::LengthDistribution& from, v1::TokenStatistics& to) {
  to.set_min(from.min());
  to.set_mean(from.mean());
  to.set_p50(from.quantile(0.5));
  to.set_p90(from.quantile(0.9));
  to.set_p99(from.quantile(0.99));
  to.set_max(from.max());
  for (const auto& bucket : from.histogram()) {
    auto& shown = *to.add_histogram();
    shown.set_upper(bucket.upper);
    shown.set_rows(bucket.rows);
  }
}

void fill(const data::TokenStatistics& from, v1::TokenStatistics& to) {
  fill_lengths(from.lengths, to);
  to.set_rows_trained(from.rows_trained);
  to.set_sequences(from.sequences);
  to.set_tokens(from.tokens);
  to.set_trainable_tokens(from.trainable_tokens);
  to.set_truncated_rows(from.truncated_rows);
  to.set_truncated_tokens(from.truncated_tokens);
  to.set_truncated_trainable_tokens(from.truncated_trainable_tokens);
  to.mutable_truncated_lines()->Add(from.truncated_lines.begin(), from.truncated_lines.end());
  for (const auto& [tag, tokens] : from.trainable_by_tag.largest(kNames))
    (*to.mutable_trainable_by_tag())[tag] = tokens;
  for (const auto& [language, tokens] : from.trainable_by_language.largest(kNames))
    (*to.mutable_trainable_by_language())[language] = tokens;
}

}  // namespace

std::optional<text::RowFormat> row_format(v1::FileFormat format) {
  switch (format) {
    case v1::FILE_FORMAT_CHAT:
      return text::RowFormat::kChat;
    case v1::FILE_FORMAT_PROMPT_COMPLETION:
      return text::RowFormat::kPromptCompletion;
    case v1::FILE_FORMAT_TEXT:
      return text::RowFormat::kText;
    case v1::FILE_FORMAT_TOKENS:
      return text::RowFormat::kTokens;
    default:
      return std::nullopt;
  }
}

v1::FileFormat format_view(std::optional<text::RowFormat> format) {
  if (!format) return v1::FILE_FORMAT_UNSPECIFIED;
  switch (*format) {
    case text::RowFormat::kChat:
      return v1::FILE_FORMAT_CHAT;
    case text::RowFormat::kPromptCompletion:
      return v1::FILE_FORMAT_PROMPT_COMPLETION;
    case text::RowFormat::kText:
      return v1::FILE_FORMAT_TEXT;
    case text::RowFormat::kTokens:
      return v1::FILE_FORMAT_TOKENS;
  }
  return v1::FILE_FORMAT_UNSPECIFIED;
}

v1::Finding finding_view(const data::Finding& finding) {
  v1::Finding view;
  view.set_line(finding.line);
  view.set_byte_offset(finding.byte_offset);
  view.set_json_path(finding.json_path);
  view.set_code(finding.code);
  view.set_severity(severity_of(finding.severity));
  view.set_message(finding.message);
  view.set_hint(finding.hint);
  view.set_excerpt(finding.excerpt);
  view.set_layer(finding.layer == data::Layer::kTokens ? v1::Finding::LAYER_TOKENS
                                                       : v1::Finding::LAYER_STRUCTURE);
  return view;
}

text::Truncation truncation(v1::Hyperparameters::Truncation truncation) {
  switch (truncation) {
    case v1::Hyperparameters::TRUNCATION_RIGHT:
      return text::Truncation::kRight;
    case v1::Hyperparameters::TRUNCATION_LEFT:
      return text::Truncation::kLeft;
    case v1::Hyperparameters::TRUNCATION_CHUNK:
      return text::Truncation::kChunk;
    case v1::Hyperparameters::TRUNCATION_ERROR:
      return text::Truncation::kError;
    default:
      return text::Truncation::kAuto;
  }
}

v1::File report_view(const data::Report& report) {
  v1::File file;
  file.set_format(format_view(report.format));
  fill(report.statistics, *file.mutable_statistics());
  for (const auto& [code, count] : report.finding_counts)
    (*file.mutable_finding_counts())[code] = count;
  for (const auto& finding : report.first_findings) *file.add_findings() = finding_view(finding);
  return file;
}

v1::FileStatistics statistics_view(const data::FileReport& report,
                                   const v1::RowEncoding& encoding) {
  v1::FileStatistics view;
  fill(report.structure.statistics, view);
  if (!report.tokens) return view;
  auto& tokens = *view.mutable_tokens();
  *tokens.mutable_encoding() = encoding;
  fill(*report.tokens, tokens);
  for (const auto& [code, rows] : report.dropped) {
    auto& shown = (*tokens.mutable_dropped())[code];
    shown.set_rows(rows.rows);
    const size_t lines = std::min(rows.lines.size(), kNames);
    shown.mutable_lines()->Add(rows.lines.begin(),
                               rows.lines.begin() + static_cast<int64_t>(lines));
  }
  return view;
}

v1::FileVerdict verdict_view(const data::FileReport& report) {
  v1::FileVerdict view;
  view.set_state(report.verdict.ok() ? v1::FILE_STATE_READY : v1::FILE_STATE_INVALID);
  view.set_message(report.verdict.message());
  view.set_format(format_view(report.structure.format));
  for (const auto& [code, count] : report.finding_counts)
    (*view.mutable_finding_counts())[code] = count;
  return view;
}

v1::PreviewedRow preview_view(const data::PreviewedRow& row, const text::Tokenizer* tokenizer) {
  v1::PreviewedRow view;
  view.set_line(row.line);
  view.set_sequence(static_cast<uint32_t>(row.sequence));
  view.set_sequences(static_cast<uint32_t>(row.sequences));
  const size_t shown = text::utf8_prefix(row.rendered, kShownBytes);
  view.set_rendered(row.rendered.substr(0, shown));
  size_t bytes = 0;
  for (size_t i = 0; i < std::min(row.encoded.ids.size(), kShownTokens); ++i) {
    auto& token = *view.add_tokens();
    token.set_id(row.encoded.ids[i]);
    token.set_weight(row.encoded.weights[i]);
    if (tokenizer != nullptr) token.set_text(text::token_text(*tokenizer, row.encoded.ids[i]));
    bytes += token.text().size();
    if (bytes > kShownBytes) break;
  }
  view.set_prompt_tokens(row.encoded.prompt_tokens);
  view.set_trainable_tokens(row.encoded.trainable_tokens);
  view.set_truncated_tokens(row.encoded.truncated_tokens);
  view.set_row_tokens(row.encoded.row_tokens);
  view.set_dropped_reason(row.dropped_code);
  view.set_dropped_message(row.dropped_message);
  return view;
}

}  // namespace dex::data_view
