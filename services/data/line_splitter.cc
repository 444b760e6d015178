#include "services/data/line_splitter.h"

#include <algorithm>

namespace dex::data {

LineSplitter::LineSplitter(int64_t max_line_bytes, Sink sink)
    : max_line_bytes_(max_line_bytes), sink_(std::move(sink)) {}

void LineSplitter::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (!part.empty()) last_ = part.back();
    if (end != std::string_view::npos && pending_size_ == 0) {
      pending_size_ = static_cast<int64_t>(part.size());
      emit(part, true);
    } else {
      // One byte more than allowed is kept, for a CR that does not count.
      const auto room = static_cast<size_t>(max_line_bytes_ + 1) - pending_.size();
      pending_.append(part.substr(0, room));
      pending_size_ += static_cast<int64_t>(part.size());
      if (end != std::string_view::npos) emit(pending_, true);
    }
    if (end == std::string_view::npos) break;
    bytes.remove_prefix(end + 1);
  }
}

void LineSplitter::finish() {
  if (pending_size_ > 0) emit(pending_, false);
}

void LineSplitter::emit(std::string_view bytes, bool has_line_end) {
  Line line;
  line.number = number_++;
  line.byte_offset = offset_;
  line.size = pending_size_;
  line.has_line_end = has_line_end;
  // Of a line that is too long the end may not be among the bytes.
  line.has_carriage_return = has_line_end && line.size > 0 && last_ == '\r';
  if (line.has_carriage_return) --line.size;
  line.too_long = line.size > max_line_bytes_;
  line.bytes = bytes.substr(0, static_cast<size_t>(std::min(line.size, max_line_bytes_)));
  offset_ += pending_size_ + (has_line_end ? 1 : 0);
  sink_(line);
  pending_.clear();
  pending_size_ = 0;
}

}  // namespace dex::data
