#include "services/data/file_preview.h"

#include <algorithm>

#include "services/text/utf8.h"

namespace dex::data {

FilePreview::FilePreview(Options options)
    : options_(std::move(options)), validator_(reading()), missing_(options_.lines) {}

// As load_encoded reads: what a job may leave out is judged elsewhere, here every row is shown.
Validator::Options FilePreview::reading() {
  Validator::Options reading;
  reading.find_duplicates = false;
  reading.limits.minimum_rows = 0;
  reading.on_row = [this](const Row& row) { take(row); };
  return reading;
}

void FilePreview::take(const Row& row) {
  if (done_) return;
  if (!options_.lines.empty()) {
    if (missing_.erase(row.line) > 0) show(row);
    ++seen_;
    // Lines before this one that are still missing are no good rows.
    done_ = missing_.empty() || *missing_.rbegin() < row.line;
    return;
  }
  if (seen_ >= options_.offset && !show(row)) {  // that is where to go on
    next_offset_ = seen_;
    done_ = true;
    return;
  }
  ++seen_;
}

// A row is shown whole or on the next page; one that no page could hold is cut.
bool FilePreview::show(const Row& row) {
  if (rows_.size() >= options_.limit) return false;
  std::vector<text::EncodedRow> sequences = options_.encoder->encode(row.content);
  if (!rows_.empty() && rows_.size() + sequences.size() > options_.limit) return false;
  const auto count = static_cast<int32_t>(sequences.size());
  for (int32_t i = 0; i < count && rows_.size() < options_.limit; ++i) {
    PreviewedRow shown{.line = row.line, .offset = seen_, .sequence = i, .sequences = count};
    shown.encoded = std::move(sequences[static_cast<size_t>(i)]);
    if (shown.encoded.drop) {
      shown.dropped_code = shown.encoded.drop->code;
      shown.dropped_message = shown.encoded.drop->message;
    }
    if (options_.tokenizer != nullptr)
      shown.rendered = text_of(*options_.tokenizer, shown.encoded.ids);
    rows_.push_back(std::move(shown));
  }
  return true;
}

std::vector<PreviewedRow> FilePreview::finish() {
  const Report report = validator_.finish();
  for (const int64_t line : missing_) {
    PreviewedRow bad{.line = line};
    const auto found = std::ranges::find_if(report.findings, [&](const Finding& finding) {
      return finding.line == line && finding.severity == Severity::kError;
    });
    const bool named = found != report.findings.end();
    bad.dropped_code = named ? found->code : "no_row";
    bad.dropped_message = named ? found->message
                                : "line " + std::to_string(line) +
                                      " holds no row: it is blank, a header, or behind the end";
    rows_.push_back(std::move(bad));
  }
  std::ranges::stable_sort(rows_, {}, &PreviewedRow::line);
  return std::move(rows_);
}

std::string text_of(const text::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  text::Utf8Stream stream;
  std::string text;
  for (const int32_t id : ids) text += stream.push(tokenizer.token_bytes(id));
  return text + stream.finish();
}

}  // namespace dex::data
