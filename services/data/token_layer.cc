#include "services/data/token_layer.h"

#include <algorithm>

namespace dex::data {

namespace {

constexpr size_t kLinesKept = 100;
constexpr size_t kOutliersKept = 20;
constexpr int64_t kOutlierFactor = 10;    // times the median
constexpr int64_t kRowsForOutliers = 20;  // fewer rows have no typical length

void remember(std::vector<int64_t>& lines, int64_t line) {
  if (lines.size() < kLinesKept) lines.push_back(line);
}

std::string hint_for(std::string_view code) {
  if (code == "token_id_out_of_range")
    return "make the ids again with the model's own tokenizer.json";
  if (code == "template_error")
    return "see what the model's chat template accepts: its roles and their order";
  return "";
}

}  // namespace

TokenLayer::TokenLayer(const text::RowEncoder& encoder, const text::Tokenizer* tokenizer,
                       Findings& findings)
    : encoder_(encoder), tokenizer_(tokenizer), findings_(findings) {}

std::vector<text::EncodedRow> TokenLayer::check(const Row& row) {
  std::vector<text::EncodedRow> encoded = encoder_.encode(row.content);
  statistics_.lengths.add(encoded.front().row_tokens);
  note_length(row, encoded.front().row_tokens);
  if (encoded.front().drop) {
    drop(row, encoded.front());
    return {};
  }
  ++statistics_.rows_trained;
  int64_t trainable = 0, truncated = 0, lost = 0;
  for (const text::EncodedRow& sequence : encoded) {
    ++statistics_.sequences;
    statistics_.tokens += static_cast<int64_t>(sequence.ids.size());
    trainable += sequence.trainable_tokens;
    truncated += sequence.truncated_tokens;
    lost += sequence.truncated_trainable_tokens;
  }
  statistics_.trainable_tokens += trainable;
  if (!row.tag.empty()) statistics_.trainable_by_tag.add(row.tag, trainable);
  if (!row.language.empty()) statistics_.trainable_by_language.add(row.language, trainable);
  if (truncated > 0) {
    ++statistics_.truncated_rows;
    statistics_.truncated_tokens += truncated;
    statistics_.truncated_trainable_tokens += lost;
    remember(statistics_.truncated_lines, row.line);
    findings_.add("truncated", Severity::kWarning, [&] {
      return Finding{.line = row.line,
                     .byte_offset = row.byte_offset,
                     .layer = Layer::kTokens,
                     .message = std::to_string(truncated) + " of the row's " +
                                std::to_string(encoded.front().row_tokens) +
                                " tokens are cut off, " + std::to_string(lost) +
                                " of them trained ones",
                     .hint = "raise max_seq_length, or cut the text into several rows yourself"};
    });
  }
  return encoded;
}

void TokenLayer::drop(const Row& row, const text::EncodedRow& encoded) {
  Dropped& dropped = statistics_.dropped[std::string(encoded.drop->code)];
  ++dropped.rows;
  remember(dropped.lines, row.line);
  findings_.add(encoded.drop->code, Severity::kError, [&] {
    return Finding{.line = row.line,
                   .byte_offset = row.byte_offset,
                   .layer = Layer::kTokens,
                   .message = encoded.drop->message,
                   .hint = hint_for(encoded.drop->code)};
  });
}

void TokenLayer::note_length(const Row& row, int64_t tokens) {
  const auto longer = [](const LongRow& a, const LongRow& b) { return a.tokens > b.tokens; };
  if (longest_.size() == kOutliersKept) {
    if (tokens <= longest_.front().tokens) return;
    std::ranges::pop_heap(longest_, longer);
    longest_.pop_back();
  }
  longest_.push_back({tokens, row.line, row.byte_offset});
  std::ranges::push_heap(longest_, longer);
}

void TokenLayer::finish(const std::string& header_sha256) {
  if (!header_sha256.empty() && tokenizer_ != nullptr && tokenizer_->sha256() != header_sha256) {
    findings_.add("tokenizer_mismatch", Severity::kError, [&] {
      return Finding{.line = 1,
                     .json_path = "$.tokenizer_sha256",
                     .layer = Layer::kTokens,
                     .message = "the ids were made with the tokenizer " +
                                header_sha256.substr(0, 12) + "…, the model's is " +
                                tokenizer_->sha256().substr(0, 12) + "…",
                     .hint = "make the ids again with the model's own tokenizer.json"};
    });
  }
  const int64_t median = statistics_.lengths.quantile(0.5);
  if (statistics_.lengths.rows() < kRowsForOutliers) return;
  std::ranges::sort(longest_, {}, &LongRow::line);
  for (const LongRow& row : longest_) {
    if (row.tokens <= kOutlierFactor * median) continue;
    findings_.add("length_outlier", Severity::kInfo, [&] {
      return Finding{.line = row.line,
                     .byte_offset = row.byte_offset,
                     .layer = Layer::kTokens,
                     .message = "the row has " + std::to_string(row.tokens) +
                                " tokens, half of all rows have at most " + std::to_string(median)};
    });
  }
}

}  // namespace dex::data
