#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// What Unicode says of characters, by the tables of Rust's standard library and of the tokenizers'
// unicode_categories. Bytes that are no UTF-8 count as U+FFFD (as Utf8Stream has it).
namespace dex::text {

enum class CharacterKind : uint8_t {
  kOther = 0,
  kCapital = 1,      // a letter that has a lower case of its own
  kPunctuation = 2,  // ASCII's, $ and + included, and the Standard's categories P*
  kBlank = 3,        // white space and control characters
};

struct Characters {
  std::string text;                  // valid UTF-8
  std::vector<CharacterKind> kinds;  // one a byte of it: that of the byte's character
};
Characters characters_of(std::string_view text);

// By the Standard's full mapping, the final sigma included: what Python's str.lower() gives.
std::string lowercase(std::string_view text);

}  // namespace dex::text
