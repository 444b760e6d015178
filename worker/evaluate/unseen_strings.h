#pragma once

#include <cstdint>
#include <string_view>

namespace dex::evaluate {

// How much of a text does not come from its source (method.md §9.6): numbers and capitalised names
// of `output` that do not stand in `source`. It compares strings and knows no meaning: "twelve"
// does not stand for 12, a right fact from elsewhere counts, a false sentence of the source's words
// does not.
//
// Words are what blanks, punctuation (services/text/characters.h) and line ends leave; a point or
// comma between two digits belongs to the word, and commas are then passed over: 1,000 is 1000. A
// number is a word with a digit 0–9. A name begins with a capital, is not a sentence's first word
// and not "I"; so every noun of German is one. Compared without case and without "'s".
struct UnseenStrings {
  int64_t unseen = 0;  // as often as they occur
  int64_t words = 0;   // of `output`
};
UnseenStrings unseen_strings(std::string_view output, std::string_view source);

}  // namespace dex::evaluate
