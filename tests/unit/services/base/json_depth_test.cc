#include "services/base/json_depth.h"

#include <gtest/gtest.h>

#include <string>

namespace dex::base {
namespace {

TEST(JsonDepthTest, CountsArraysAndObjectsTogether) {
  EXPECT_FALSE(nests_deeper("", 0));
  EXPECT_FALSE(nests_deeper("1", 0));
  EXPECT_TRUE(nests_deeper("[]", 0));
  EXPECT_FALSE(nests_deeper(R"({"a": [1], "b": [{}, {}]})", 3));
  EXPECT_TRUE(nests_deeper(R"({"a": [1], "b": [{}, {}]})", 2));
  EXPECT_FALSE(nests_deeper("[[],[],[],[],[]]", 2));
  EXPECT_TRUE(nests_deeper(std::string(1 << 20, '[')));
}

TEST(JsonDepthTest, BracketsInStringsAreNone) {
  EXPECT_FALSE(nests_deeper(R"(["[[[[", "\"[[[", "\\"])", 1));
  EXPECT_TRUE(nests_deeper(R"(["\\", [])", 1));
  EXPECT_FALSE(nests_deeper(R"("\)", 0));  // cut off behind the stroke
}

}  // namespace
}  // namespace dex::base
