#include "services/text/characters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dex::text {
namespace {

using enum CharacterKind;

TEST(CharactersTest, LowerCaseIsPythons) {  // Python 3.11: str.lower()
  EXPECT_EQ(lowercase("Plain ASCII 12!"), "plain ascii 12!");
  EXPECT_EQ(lowercase("ZÜRICH École Ёжик ŁÓDŹ"), "zürich école ёжик łódź");
  EXPECT_EQ(lowercase("ΟΔΟΣ. Σ"), "οδος. σ");            // final, and alone
  EXPECT_EQ(lowercase("İzmir STRAẞE"), "i̇zmir straße");  // i and U+0307
  EXPECT_EQ(lowercase("東京 عربي"), "東京 عربي");
  EXPECT_EQ(lowercase(""), "");
  EXPECT_EQ(lowercase("A\xC3"), "a\uFFFD");  // cut inside a character
}

TEST(CharactersTest, EachByteHasTheKindOfItsCharacter) {
  const auto kinds = [](std::string_view text) { return characters_of(text).kinds; };
  EXPECT_THAT(kinds("aB1 ."),
              ::testing::ElementsAre(kOther, kCapital, kOther, kBlank, kPunctuation));
  EXPECT_THAT(kinds("Éa"), ::testing::ElementsAre(kCapital, kCapital, kOther));
  for (const char* mark : {"¿", "«", "»", "—", "’", "。", "、", "؟", "$"})
    EXPECT_THAT(kinds(mark), ::testing::Each(kPunctuation)) << mark;
  for (const char* blank : {"\n", "\u00A0", "\u3000", "\u2028"})
    EXPECT_THAT(kinds(blank), ::testing::Each(kBlank));
  for (const char* capital : {"Ж", "Ω", "ǅ", "Ñ"})
    EXPECT_THAT(kinds(capital), ::testing::Each(kCapital)) << capital;
  for (const char* other : {"ж", "ß", "東", "ع", "€", "é"})
    EXPECT_THAT(kinds(other), ::testing::Each(kOther)) << other;
  EXPECT_TRUE(kinds("").empty());
  EXPECT_EQ(characters_of("a\xE2\x82").text, "a\uFFFD");
  EXPECT_EQ(kinds("a\xE2\x82").size(), 4U);
}

}  // namespace
}  // namespace dex::text
