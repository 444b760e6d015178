#include "worker/evaluate/haystack.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "worker/evaluate/random_stream.h"

namespace dex::evaluate {
namespace {

constexpr std::array kCities = {
    "Accra",    "Adelaide", "Algiers", "Ankara",   "Athens",   "Auckland", "Baku",      "Bamako",
    "Bangkok",  "Bergen",   "Berlin",  "Bogota",   "Boston",   "Brisbane", "Brussels",  "Bucharest",
    "Budapest", "Cairo",    "Calgary", "Caracas",  "Chicago",  "Cologne",  "Colombo",   "Dakar",
    "Dallas",   "Damascus", "Delhi",   "Denver",   "Dublin",   "Durban",   "Florence",  "Geneva",
    "Glasgow",  "Hanoi",    "Harare",  "Havana",   "Helsinki", "Istanbul", "Jakarta",   "Kampala",
    "Karachi",  "Kyoto",    "Lagos",   "Lima",     "Lisbon",   "London",   "Lusaka",    "Madrid",
    "Manila",   "Mumbai",   "Munich",  "Nairobi",  "Oslo",     "Ottawa",   "Paris",     "Prague",
    "Quito",    "Riga",     "Rome",    "Santiago", "Seoul",    "Seville",  "Stockholm", "Toronto"};

bool is_closing(char c) {
  return c == '"' || c == '\'' || c == ')' || c == ']';
}
bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

// "Lima, Oslo and Rome".
std::string listed(const std::vector<Needle>& needles, int32_t count) {
  std::string out;
  for (int32_t i = 0; i < count; ++i) {
    if (i > 0) out += i + 1 == count ? " and " : ", ";
    out += needles[i].city;
  }
  return out;
}

}  // namespace

std::vector<std::string> split_sentences(std::string_view text) {
  std::vector<std::string> out;
  std::string sentence;
  const auto end_sentence = [&] {
    while (!sentence.empty() && sentence.back() == ' ') sentence.pop_back();
    if (!sentence.empty()) out.push_back(std::exchange(sentence, {}));
  };
  bool ends = false;  // the last characters are . ! or ? and what may close behind them
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_space(c)) {
      const size_t next = std::min(text.find_first_not_of(" \t\r\n\f\v", i), text.size());
      const bool blank_line = std::ranges::count(text.substr(i, next - i), '\n') > 1;
      if (ends || blank_line) {
        end_sentence();
      } else if (!sentence.empty()) {
        sentence += ' ';
      }
      ends = false;
      i = next - 1;
      continue;
    }
    sentence += c;
    ends = c == '.' || c == '!' || c == '?' || (ends && is_closing(c));
  }
  end_sentence();
  return out;
}

int32_t most_needles() {
  return static_cast<int32_t>(kCities.size());
}

NeedleDraw draw_needles(int32_t count, double depth, uint32_t filler_sentences, uint64_t seed,
                        uint64_t sample) {
  RandomStream random(seed, Draw::kNeedles, sample);
  NeedleDraw out;
  const auto cities = random.permutation(static_cast<uint32_t>(kCities.size()));
  std::set<std::string> taken;
  for (int32_t i = 0; i < count; ++i) {
    std::string number;
    do {
      number = std::to_string(100'000 + random.below(900'000));
    } while (!taken.insert(number).second);
    out.needles.push_back({kCities[cities[i]], number});
    out.depths.push_back(i == 0 ? depth : random.below(1'000'001) / 1e6);
  }
  out.filler_start = RandomStream(seed, Draw::kFiller, sample).below(filler_sentences);
  return out;
}

std::string sentence_of(const Needle& needle) {
  return "The magic number of " + needle.city + " is " + needle.number + ".";
}

std::string build_haystack(const std::vector<std::string>& sentences,
                           const std::vector<int32_t>& tokens, const NeedleDraw& draw) {
  std::vector<double> before = {0};  // tokens before each boundary
  for (const int32_t count : tokens) before.push_back(before.back() + count);
  std::vector<std::vector<size_t>> at(before.size());  // needles of each boundary
  for (size_t n = 0; n < draw.needles.size(); ++n) {
    const double wanted = draw.depths[n] * before.back();
    size_t nearest = 0;
    for (size_t b = 1; b < before.size(); ++b) {
      if (std::abs(before[b] - wanted) < std::abs(before[nearest] - wanted)) nearest = b;
    }
    // A filler of no length has only one boundary; depth 1 still means the end.
    if (draw.depths[n] == 1) nearest = before.size() - 1;
    at[nearest].push_back(n);
  }
  std::string out;
  const auto add = [&](std::string_view sentence) {
    if (!out.empty()) out += ' ';
    out += sentence;
  };
  for (size_t b = 0; b < at.size(); ++b) {
    for (const size_t n : at[b]) add(sentence_of(draw.needles[n]));
    if (b < sentences.size()) add(sentences[b]);
  }
  return out;
}

NeedleQuestion ask_for(const std::vector<Needle>& needles, int32_t asked) {
  const std::string cities = listed(needles, asked);
  if (asked == 1)
    return {"What is the magic number of " + cities + "?", "The magic number of " + cities + " is"};
  return {"What are the magic numbers of " + cities + "?",
          "The magic numbers of " + cities + " are"};
}

int32_t numbers_found(std::string_view answer, const std::vector<Needle>& needles, int32_t asked) {
  std::set<std::string, std::less<>> runs;
  for (size_t i = 0; i < answer.size();) {
    const size_t begin = std::min(answer.find_first_of("0123456789", i), answer.size());
    const size_t end = std::min(answer.find_first_not_of("0123456789", begin), answer.size());
    if (end > begin) runs.emplace(answer.substr(begin, end - begin));
    i = std::max(end, i + 1);
  }
  int32_t found = 0;
  for (int32_t i = 0; i < asked; ++i) found += runs.contains(needles[i].number) ? 1 : 0;
  return found;
}

}  // namespace dex::evaluate
