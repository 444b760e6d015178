#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// UTF-8 as the Unicode Standard defines it (table 3-7): no surrogates, no overlong forms, at most
// U+10FFFF.
namespace dex::text {

// Where the first byte that is not valid UTF-8 stands; text.size() if all is valid. A sequence cut
// off by the end counts as invalid at its first byte.
size_t find_invalid_utf8(std::string_view text);
inline bool is_valid_utf8(std::string_view text) {
  return find_invalid_utf8(text) == text.size();
}

// How many characters (code points) valid UTF-8 has.
size_t count_characters(std::string_view text);

// Length of the longest prefix that is not longer than `limit` and splits no character.
size_t utf8_prefix(std::string_view text, size_t limit);

// Turns a stream of bytes into valid UTF-8. Bytes that could still become a character are held
// back; each maximal part of a broken sequence becomes one U+FFFD (the Standard's and Rust's
// from_utf8_lossy's rule), so the pieces together equal the conversion of the whole. Not
// thread-safe.
class Utf8Stream {
 public:
  // The text that is certain now.
  std::string push(std::string_view bytes);
  // What is left: one U+FFFD for a broken tail, else nothing. The object then starts anew.
  std::string finish();

 private:
  std::string pending_;  // at most 3 bytes
};

}  // namespace dex::text
