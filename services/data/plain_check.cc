#include "services/data/plain_check.h"

#include <algorithm>
#include <utility>

#include "services/data/file_signature.h"
#include "services/text/utf8.h"

namespace dex::data {

namespace {
constexpr size_t kLongestCut = 3;  // bytes of a character that may lie in the next piece
}

void PlainCheck::fault(std::string_view code, int64_t line, int64_t offset, std::string message,
                       std::string hint) {
  if (!report_.finding_counts.empty()) return;  // what follows the first fault is noise
  Finding finding;
  finding.line = line;
  finding.byte_offset = offset;
  finding.code = code;
  finding.message = std::move(message);
  finding.hint = std::move(hint);
  ++report_.finding_counts[finding.code];
  report_.message = finding.message;
  report_.findings.push_back(finding);
  report_.first_findings.push_back(std::move(finding));
}

void PlainCheck::look_at_head() {
  known_ = true;
  const Signature other = recognize(std::string_view(head_).substr(0, kSignatureBytes));
  if (!other.code.empty())
    fault(other.code, 0, 0, std::string(other.message), std::string(other.hint));
  std::string head = std::move(head_);
  head_.clear();
  look_at(head, false);
}

void PlainCheck::look_at(std::string_view piece, bool at_end) {
  if (!report_.finding_counts.empty()) return;
  tail_ += piece;
  const std::string text = std::exchange(tail_, {});
  const size_t bad = text::find_invalid_utf8(text);
  if (bad < text.size()) {
    // Cut off by the piece's end it may still become a character.
    const bool cut = !at_end && text.size() - bad <= kLongestCut;
    if (!cut) {
      const int64_t line =
          line_ + std::count(text.begin(), text.begin() + static_cast<int64_t>(bad), '\n');
      return fault("invalid_utf8", line, bytes_ + static_cast<int64_t>(bad),
                   "line " + std::to_string(line) + " is not UTF-8",
                   "iconv -f WINDOWS-1252 -t UTF-8 IN > OUT");
    }
    tail_ = text.substr(bad);
  }
  const std::string_view good = std::string_view(text).substr(0, bad);
  line_ += std::count(good.begin(), good.end(), '\n');
  bytes_ += static_cast<int64_t>(good.size());
  const std::string_view content =
      bytes_ == static_cast<int64_t>(good.size()) && good.starts_with("\xEF\xBB\xBF")
          ? good.substr(3)
          : good;
  blank_ = blank_ && content.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos;
}

void PlainCheck::feed(std::string_view bytes) {
  report_.statistics.bytes += static_cast<int64_t>(bytes.size());
  if (known_) return look_at(bytes, false);
  head_ += bytes;
  if (head_.size() >= kSignatureBytes) look_at_head();
}

Report PlainCheck::finish() {
  if (!known_) look_at_head();
  look_at({}, true);
  if (blank_ && report_.finding_counts.empty())
    fault("empty_file", 0, 0, "the file is empty: there is nothing to evaluate", "");
  report_.ready = report_.finding_counts.empty();
  report_.statistics.text_bytes = report_.ready ? report_.statistics.bytes : 0;
  report_.statistics.tokens_guess = report_.statistics.text_bytes / 4;
  return std::move(report_);
}

}  // namespace dex::data
