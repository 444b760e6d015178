#include "services/auth/api_key.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <regex>
#include <set>

namespace dex::auth {
namespace {

// Bytes that a test has chosen.
class FixedRandom final : public base::RandomSource {
 public:
  explicit FixedRandom(uint8_t value) : value_(value) {}
  void fill(std::span<uint8_t> bytes) override { std::fill(bytes.begin(), bytes.end(), value_); }

 private:
  const uint8_t value_;
};

TEST(ApiKeyTest, HasItsFormAndFitsTheWholeRangeOfItsBytes) {
  const std::regex form("dex_[0-9A-Za-z]{43}[0-9A-Za-z]{6}");
  for (const int value : {0, 1, 0x7f, 0xff}) {
    FixedRandom random(static_cast<uint8_t>(value));
    const std::string key = make_api_key(random);
    EXPECT_TRUE(std::regex_match(key, form)) << key;
    EXPECT_TRUE(is_api_key(key)) << key;
  }
  FixedRandom zero(0), most(0xff);
  EXPECT_EQ(make_api_key(zero).substr(4, 43), std::string(43, '0'));
  // 2^256 - 1 in base 62, by Python: n, d = 2**256 - 1, ''; while n: n, r = divmod(n, 62); …
  EXPECT_EQ(make_api_key(most).substr(4, 43), "yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp1");
}

TEST(ApiKeyTest, TwoAreNeverEqual) {
  base::SystemRandom random;
  std::set<std::string> keys;
  for (int i = 0; i < 1000; ++i) keys.insert(make_api_key(random));
  EXPECT_EQ(keys.size(), 1000U);
}

TEST(ApiKeyTest, ATypingErrorIsSeenWithoutALookUp) {
  base::SeededRandom random(7);
  const std::string key = make_api_key(random);
  for (size_t at = 0; at < key.size(); ++at) {
    std::string wrong = key;
    wrong[at] = wrong[at] == 'x' ? 'y' : 'x';
    EXPECT_FALSE(is_api_key(wrong)) << at;
  }
  std::string swapped = key;
  std::swap(swapped[4], swapped[5]);
  EXPECT_EQ(is_api_key(swapped), swapped == key);
  for (const std::string& wrong :
       {std::string(), std::string("none"), key + "0", key.substr(1), " " + key, key + "\n"}) {
    EXPECT_FALSE(is_api_key(wrong)) << wrong;
  }
}

TEST(ApiKeyTest, WhatIsStoredAndShownIsNotTheKey) {
  // The SHA-256 of "abc" of FIPS 180-2.
  EXPECT_EQ(api_key_sha256("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  base::SeededRandom random(7);
  const std::string key = make_api_key(random);
  EXPECT_EQ(api_key_prefix(key), key.substr(0, 10));
}

TEST(ApiKeyTest, TheBearerIsTakenOutOfItsHeader) {
  EXPECT_EQ(bearer_token("Bearer abc"), "abc");
  EXPECT_EQ(bearer_token("bearer   abc "), "abc");
  EXPECT_EQ(bearer_token("BEARER abc"), "abc");
  for (const char* other :
       {"", "Bearer", "Bearer ", "Bearer    ", "Basic abc", "Bearerabc", "abc"}) {
    EXPECT_FALSE(bearer_token(other)) << other;
  }
}

TEST(ApiKeyTest, ComparingTellsEqualFromUnequal) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "xbc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abcd"));
}

}  // namespace
}  // namespace dex::auth
