#include "tests/fuzz/mutations.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <limits>

namespace dex::fuzz {

namespace {

// SplitMix64: enough here, and the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t x = state_ += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  }
  size_t below(size_t end) { return end == 0 ? 0 : next() % end; }
  template <class List>
  const auto& of(const List& list) {
    return list[below(list.size())];
  }

 private:
  uint64_t state_;
};

struct Piece {
  size_t at = 0, size = 0;
};

// Mostly short: a change of a few bytes leaves the rest worth reading.
Piece piece_of(const std::string& text, Random& random) {
  const size_t at = random.below(text.size());
  const size_t most =
      random.below(4) == 0 ? text.size() - at : std::min<size_t>(16, text.size() - at);
  return {at, most == 0 ? 0 : 1 + random.below(most)};
}

void flip_a_bit(std::string& text, Random& random) {
  if (text.empty()) return;
  text[random.below(text.size())] ^= static_cast<char>(1 << random.below(8));
}

void set_a_byte(std::string& text, Random& random) {
  constexpr std::string_view kBytes("\0\xFF\x7F\x80\xC0\xED\r\n\"\\{}[],:0-=(). ", 23);
  if (text.empty()) return;
  text[random.below(text.size())] = random.of(kBytes);
}

void cut_off(std::string& text, Random& random) {
  text.resize(random.below(text.size() + 1));
}

void erase_a_piece(std::string& text, Random& random) {
  const Piece piece = piece_of(text, random);
  text.erase(piece.at, piece.size);
}

// Also what nests: "[" as a piece becomes "[[[[…".
void repeat_a_piece(std::string& text, Random& random) {
  const Piece piece = piece_of(text, random);
  if (piece.size == 0) return;
  const std::string copy = text.substr(piece.at, piece.size);
  const size_t most = std::min<size_t>(2000, kLongestInput / piece.size);
  const size_t times = random.below(4) == 0 ? random.below(most + 1) : 1 + random.below(4);
  std::string all;
  for (size_t i = 0; i < times; ++i) all += copy;
  text.insert(piece.at, all);
}

void exchange_two_pieces(std::string& text, Random& random) {
  const Piece from = piece_of(text, random);
  const std::string copy = text.substr(std::min(from.at, text.size()), from.size);
  text.erase(std::min(from.at, text.size()), from.size);
  text.insert(random.below(text.size() + 1), copy);
}

// A length field: 1 to 8 bytes, little-endian, at a limit.
void set_a_field(std::string& text, Random& random) {
  const std::array<uint64_t, 12> limits = {0,
                                           1,
                                           0x7F,
                                           0xFF,
                                           0xFFFF,
                                           std::numeric_limits<int32_t>::max(),
                                           std::numeric_limits<uint32_t>::max(),
                                           uint64_t{1} << 63,
                                           std::numeric_limits<uint64_t>::max(),
                                           text.size(),
                                           text.size() + 1,
                                           text.size() - 1};
  const uint64_t value = random.of(limits);
  const size_t width = size_t{1} << random.below(4);
  if (text.size() < width) return;
  // Most formats have theirs in front.
  const size_t at = random.below(2) == 0 ? 0 : random.below(text.size() - width + 1);
  std::memcpy(text.data() + at, &value, width);
}

// A number written in digits, by another one.
void replace_a_number(std::string& text, Random& random) {
  constexpr std::array<std::string_view, 22> kNumbers = {"0",          "-1",
                                                         "1",          "2",
                                                         "-0",         "0.5",
                                                         "65536",      "2147483647",
                                                         "2147483648", "4294967295",
                                                         "4294967296", "9007199254740993",
                                                         "1e308",      "1e309",
                                                         "-1e400",     "1e-400",
                                                         "NaN",        "Infinity",
                                                         "00",         "9223372036854775807",
                                                         "1e10",       "18446744073709551616"};
  const size_t start = random.below(text.size());
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto from =
      std::find_if(text.begin() + static_cast<std::ptrdiff_t>(start), text.end(), is_digit);
  if (from == text.end()) return;
  auto begin = from;
  while (begin != text.begin() && is_digit(*(begin - 1))) --begin;
  const auto end = std::find_if_not(from, text.end(), is_digit);
  text.replace(begin, end, random.of(kNumbers));
}

// A value of a text format by one of another kind: from one mark to the next.
void replace_a_value(std::string& text, Random& random) {
  constexpr std::array<std::string_view, 12> kValues = {
      "null",        "true",     "[]",        "{}",   "\"\"",    "[[]]", "\"\xF0\x9F\x99\x82\"",
      "\"\\ud800\"", "\"\xFF\"", "{\"a\":1}", "-1.5", "\"../x\""};
  constexpr std::string_view kMarks = ":,[=(";
  if (text.empty()) return;
  const size_t mark = text.find_first_of(kMarks, random.below(text.size()));
  if (mark == std::string::npos) return;
  const size_t end = std::min(text.find_first_of(",}])\n", mark + 1), text.size());
  text.replace(mark + 1, end - mark - 1, random.of(kValues));
}

void add_a_word(std::string& text, Random& random, const Corpus& corpus) {
  if (corpus.words.empty()) return;
  const std::string& word = random.of(corpus.words);
  const size_t at = random.below(text.size() + 1);
  if (random.below(2) == 0) {
    text.insert(at, word);
  } else {
    text.replace(at, std::min(word.size(), text.size() - at), word);
  }
}

// This one's beginning and another one's end, or its piece in the middle.
void splice(std::string& text, Random& random, const Corpus& corpus) {
  const std::string& other = random.of(corpus.seeds);
  if (random.below(2) == 0) {
    text.resize(random.below(text.size() + 1));
    text += other.substr(random.below(other.size() + 1));
  } else {
    const Piece piece = piece_of(other, random);
    text.insert(random.below(text.size() + 1), other, std::min(piece.at, other.size()), piece.size);
  }
}

void change(std::string& text, Random& random, const Corpus& corpus) {
  switch (random.below(12)) {
    case 0:
      return flip_a_bit(text, random);
    case 1:
      return set_a_byte(text, random);
    case 2:
      return random.below(4) == 0 ? cut_off(text, random) : erase_a_piece(text, random);
    case 3:
      return repeat_a_piece(text, random);
    case 4:
      return exchange_two_pieces(text, random);
    case 5:
      return set_a_field(text, random);
    case 6:
    case 7:
      return replace_a_number(text, random);
    case 8:
    case 9:
      return replace_a_value(text, random);
    case 10:
      return add_a_word(text, random, corpus);
    default:
      return splice(text, random, corpus);
  }
}

}  // namespace

std::string input_of(const Corpus& corpus, uint64_t seed, uint64_t index) {
  if (index < corpus.seeds.size()) return corpus.seeds[index];
  Random random(Random(seed).next() ^ (index * 0xD1B54A32D192ED03));
  std::string text = random.of(corpus.seeds);
  for (size_t left = 1 + random.below(6); left > 0; --left) {
    change(text, random, corpus);
    if (text.size() > kLongestInput) text.resize(kLongestInput);
  }
  return text;
}

}  // namespace dex::fuzz
