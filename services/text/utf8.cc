#include "services/text/utf8.h"

#include <cstdint>
#include <cstring>

namespace dex::text {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// What stands at the front of some bytes.
struct Sequence {
  size_t size;      // bytes to take; of a broken one its maximal part, at least 1
  bool valid;       // a whole character
  bool incomplete;  // valid so far, but the bytes end inside it
};

Sequence next_sequence(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return {1, true, false};
  size_t length = 0;
  uint8_t low = 0x80, high = 0xBF;  // of the second byte
  if (lead >= 0xC2 && lead <= 0xDF) length = 2;
  if (lead >= 0xE0 && lead <= 0xEF) length = 3;
  if (lead >= 0xF0 && lead <= 0xF4) length = 4;
  if (length == 0) return {1, false, false};
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {i, false, true};
    if (at(i) < low || at(i) > high) return {i, false, false};
    low = 0x80, high = 0xBF;
  }
  return {length, true, false};
}

// Bytes at the front that are ASCII, eight at a time.
size_t ascii_prefix(std::string_view text) {
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    if (word & 0x8080808080808080ull) break;
  }
  while (at < text.size() && static_cast<uint8_t>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    at += ascii_prefix(text.substr(at));
    if (at == text.size()) break;
    const Sequence sequence = next_sequence(text.substr(at));
    if (!sequence.valid) return at;
    at += sequence.size;
  }
  return at;
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

size_t utf8_prefix(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text.size();
  while (limit > 0 && (static_cast<uint8_t>(text[limit]) & 0xC0) == 0x80) --limit;
  return limit;
}

std::string Utf8Stream::push(std::string_view bytes) {
  pending_.append(bytes);
  std::string out;
  size_t at = 0;
  while (at < pending_.size()) {
    const std::string_view rest = std::string_view(pending_).substr(at);
    const Sequence sequence = next_sequence(rest);
    if (sequence.incomplete) break;
    out.append(sequence.valid ? rest.substr(0, sequence.size) : kReplacement);
    at += sequence.size;
  }
  pending_.erase(0, at);
  return out;
}

std::string Utf8Stream::finish() {
  const bool broken = !pending_.empty();
  pending_.clear();
  return broken ? std::string(kReplacement) : std::string();
}

}  // namespace dex::text
