#include "scheduler/server/findings_view.h"

namespace dex::server {

namespace {

constexpr size_t kNames = 100;

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
  return view;
}

v1::File report_view(const data::Report& report) {
  v1::File file;
  file.set_format(format_view(report.format));
  auto& statistics = *file.mutable_statistics();
  statistics.set_rows_good(report.statistics.rows_good);
  statistics.set_rows_skipped(report.statistics.rows_skipped);
  statistics.set_characters(report.statistics.characters);
  statistics.set_tokens_guess(report.statistics.tokens_guess);
  statistics.set_duplicate_rows(report.statistics.duplicate_rows);
  statistics.set_longest_row_bytes(report.statistics.longest_row_bytes);
  statistics.set_text_bytes(report.statistics.text_bytes);
  for (const auto& [tag, rows] : report.statistics.rows_by_tag.largest(kNames)) {
    (*statistics.mutable_rows_by_tag())[tag] = rows;
  }
  for (const auto& [language, rows] : report.statistics.rows_by_language.largest(kNames)) {
    (*statistics.mutable_rows_by_language())[language] = rows;
  }
  for (const auto& [code, count] : report.finding_counts)
    (*file.mutable_finding_counts())[code] = count;
  for (const auto& finding : report.first_findings) *file.add_findings() = finding_view(finding);
  return file;
}

}  // namespace dex::server
