#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// The texts of multi-needle retrieval (method.md §9.2), free of models.
namespace dex::evaluate {

// A text cut at the ends of its sentences: after . ! or ? (closing quotes and brackets included)
// before a blank, and at blank lines. Blanks and line ends inside a sentence become one space;
// empty sentences are left out.
std::vector<std::string> split_sentences(std::string_view text);

struct Needle {
  std::string city;
  std::string number;  // six digits
};

// How many needles there are at most: each has a city of its own.
int32_t most_needles();

// One haystack's needles: different cities, different numbers from 100000 to 999999. A function of
// its arguments. The first `asked` are asked for.
struct NeedleDraw {
  std::vector<Needle> needles;
  uint32_t filler_start = 0;   // sentence of the filler to begin at
  std::vector<double> depths;  // 0–1 of each needle; that of the first is the cell's
};
NeedleDraw draw_needles(int32_t count, double depth, uint32_t filler_sentences, uint64_t seed,
                        uint64_t sample);

// "The magic number of CITY is NUMBER."
std::string sentence_of(const Needle& needle);

// Sentences joined by spaces, with each needle at the boundary nearest to its depth, measured in
// the tokens of the filler (`tokens`, one a sentence). Depth 0 is before the first sentence, 1
// behind the last.
std::string build_haystack(const std::vector<std::string>& sentences,
                           const std::vector<int32_t>& tokens, const NeedleDraw& draw);

// The question for the first `asked` needles, and how a text that answers it begins: "What are the
// magic numbers of Lima and Oslo?", "The magic numbers of Lima and Oslo are".
struct NeedleQuestion {
  std::string question;
  std::string beginning;
};
NeedleQuestion ask_for(const std::vector<Needle>& needles, int32_t asked);

// How many of the first `asked` numbers stand in `answer` as whole strings of digits: 1234567 does
// not hold 123456.
int32_t numbers_found(std::string_view answer, const std::vector<Needle>& needles, int32_t asked);

}  // namespace dex::evaluate
