#include "worker/evaluate/head_pictures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace dex::evaluate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

const HeadTable kEntropyTable{{1, 2, 3}, {0.5, 4, 2.25}};
const HeadTable kImportanceTable{{0.1, 0.2, 0.3}, {0.01, 0.02, 0.03}};

TEST(HeadPicturesTest, EveryHeadIsACellAndEveryChosenOneIsRinged) {
  const std::string svg = head_selection_svg(
      "Heads of a & b", {{"Entropy", "nats", kEntropyTable}, {"Importance", "", kImportanceTable}},
      {{2}, {1, 2}}, 3);
  EXPECT_EQ(count(svg, "class=\"cell\""), 12u);  // a grid a score
  EXPECT_EQ(count(svg, "class=\"ring\""), 6u);
  EXPECT_THAT(svg, HasSubstr("<title>layer 1, head 2: 2.25 nats, chosen</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>layer 0, head 0: 0.1</title>"));
  // Darkest for the highest of all layers, never invisible for the lowest.
  EXPECT_THAT(svg, HasSubstr("fill-opacity=\"1\"><title>layer 1, head 1: 4 nats, chosen"));
  EXPECT_THAT(svg, HasSubstr("fill-opacity=\"0.08\"><title>layer 1, head 0: 0.5 nats"));
}

TEST(HeadPicturesTest, StandAloneInBothColourSchemesAndAsWords) {
  const std::string svg =
      head_selection_svg("Heads of a & b", {{"Entropy", "nats", kEntropyTable}}, {{2}, {1, 2}}, 3);
  EXPECT_THAT(svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(svg, HasSubstr("role=\"img\" aria-labelledby=\"dex-heads-title dex-heads-text\""));
  EXPECT_THAT(svg, HasSubstr("<title id=\"dex-heads-title\">Heads of a &amp; b</title>"));
  EXPECT_THAT(svg, HasSubstr("3 of 6 heads are chosen, in 2 layers of 3. Entropy goes from 0.5 to "
                             "4 nats.</desc>"));
  EXPECT_THAT(svg, HasSubstr("@media (prefers-color-scheme:dark)"));
  for (const char* outside : {"<script", "href", "url(http", "@import", "<image"})
    EXPECT_THAT(svg, Not(HasSubstr(outside)));
  EXPECT_EQ(count(svg, "<rect"), count(svg, "/>") + count(svg, "</rect>") - count(svg, "<line"));
}

TEST(HeadPicturesTest, HistogramsCountAllAndChosenHeads) {
  const std::string svg =
      head_selection_svg("t", {{"Entropy", "", kEntropyTable}}, {{2}, {1, 2}}, 3);
  EXPECT_EQ(count(svg, "class=\"rest\""), 6u);  // six different values in twenty ranges
  EXPECT_EQ(count(svg, "class=\"chosen\""), 3u);
  EXPECT_THAT(svg, HasSubstr("Heads by Entropy"));
}

TEST(HeadPicturesTest, AChoiceWithoutScoresHasAGridOfItsOwn) {
  const std::string svg = head_selection_svg("t", {}, {{0}, {}}, 2);
  EXPECT_EQ(count(svg, "class=\"cell\""), 4u);
  EXPECT_EQ(count(svg, "class=\"ring\""), 1u);
  EXPECT_THAT(svg, HasSubstr("Chosen heads"));
}

TEST(HistogramTest, RangesAreEqualAndTheLastIsClosed) {
  const Histogram found = histogram({0, 0.9, 1, 2.5, 4}, 4);
  EXPECT_EQ(found.low, 0);
  EXPECT_EQ(found.high, 4);
  EXPECT_THAT(found.counts, ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(histogram({7, 7}, 4).counts, ElementsAre(2));
}

TEST(HeadScoresPictureTest, SaysNothingOfAChoiceWhereThereIsNone) {
  const HeadTable entropy = {{1, 2}, {3, 4}};
  const std::string svg = head_scores_svg("Heads of base", {{"entropy", "", entropy}});
  EXPECT_NE(svg.find("2 layers of 2 heads. entropy goes from 1 to 4."), std::string::npos);
  EXPECT_EQ(svg.find("are chosen"), std::string::npos);
  EXPECT_EQ(svg.find("ringed"), std::string::npos);
  EXPECT_NE(svg.find("layer 1, head 0: 3"), std::string::npos);
}

// A score that a head does not have (what a branch takes away, where none acts) is no number.
TEST(HeadScoresPictureTest, MarksWhatIsNotDefinedAndCountsItNowhere) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const HeadTable some = {{1, none}, {none, 4}}, nothing = {{none, none}};
  const std::string svg = head_scores_svg("t", {{"directions", "", some}});
  EXPECT_THAT(svg, HasSubstr("directions goes from 1 to 4."));
  EXPECT_THAT(svg, HasSubstr("layer 0, head 1: not defined"));
  EXPECT_EQ(count(svg, "class=\"rest\""), 2u);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  const std::string empty = head_scores_svg("t", {{"directions", "", nothing}});
  EXPECT_EQ(count(empty, "class=\"rest\""), 0u);
  EXPECT_THAT(empty, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace dex::evaluate
