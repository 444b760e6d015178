#include "worker/serve/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace dex::serve {
namespace {

std::string feed(StopMatcher& matcher, const std::vector<std::string>& pieces) {
  std::string out;
  for (const std::string& piece : pieces) out += matcher.push(piece);
  return out;
}

TEST(StopMatcher, HoldsBackAcrossPieces) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.push("the E"), "the ");
  EXPECT_EQ(matcher.push("N"), "");
  EXPECT_EQ(matcher.push("x"), "ENx");
  EXPECT_EQ(matcher.push("EN"), "");
  EXPECT_EQ(matcher.push("D and more"), "");
  EXPECT_EQ(matcher.found(), "END");
  EXPECT_EQ(matcher.push("nothing"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, GivesBackWhatItHeldWhenTheTextEnds) {
  StopMatcher matcher({"\n\n"});
  EXPECT_EQ(matcher.push("a\n"), "a");
  EXPECT_EQ(matcher.finish(), "\n");
}

TEST(StopMatcher, TheFirstToBeCompleteWinsThenTheLongest) {
  StopMatcher first({"cd", "bc", "bcd"});
  EXPECT_EQ(first.push("abcd"), "a");
  EXPECT_EQ(first.found(), "bc");
  StopMatcher longest({"d", "bcd", "cd"});
  EXPECT_EQ(longest.push("abcd"), "a");
  EXPECT_EQ(longest.found(), "bcd");
}

TEST(StopMatcher, OverlapsWithItself) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(feed(matcher, {"a", "a", "a", "b", "c"}), "a");
  EXPECT_EQ(matcher.found(), "aab");
}

TEST(StopMatcher, WithoutStopsEverythingPasses) {
  StopMatcher matcher({});
  EXPECT_EQ(feed(matcher, {"a", "", "bc"}), "abc");
}

// However a text is cut, the result is that of the whole text.
TEST(StopMatcher, PiecesDoNotMatter) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    const auto word = [&](size_t most) {
      std::string out(1 + random() % most, 'a');
      for (char& c : out) c = static_cast<char>('a' + random() % 2);
      return out;
    };
    const std::string text = word(20);
    const std::vector<std::string> stops = {word(4), word(4)};
    StopMatcher matcher(stops);
    std::string got;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % 3;
      got += matcher.push(text.substr(at, length));
      at += length;
    }
    got += matcher.finish();
    size_t cut = std::string::npos;
    size_t end = std::string::npos;
    for (const std::string& stop : stops) {
      const size_t at = text.find(stop);
      if (at == std::string::npos || at + stop.size() > end) continue;
      cut = at + stop.size() < end ? at : std::min(cut, at);
      end = at + stop.size();
    }
    ASSERT_EQ(got, text.substr(0, cut)) << text << " " << stops[0] << " " << stops[1];
  }
}

}  // namespace
}  // namespace dex::serve
