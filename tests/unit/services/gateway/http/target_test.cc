#include "services/gateway/http/target.h"

#include <gmock/gmock.h>

namespace dex::gateway::http {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(TargetTest, DecodesSegmentsAndQuery) {
  const auto target = parse_target("/v1/models/ft%3Asmol%2Fx?limit=3&text=a+b%26c&flag");
  ASSERT_TRUE(target.ok()) << target.status().to_string();
  EXPECT_EQ(target->path, "/v1/models/ft%3Asmol%2Fx");
  EXPECT_THAT(target->segments, ElementsAre("v1", "models", "ft:smol/x"));
  EXPECT_THAT(target->query,
              ElementsAre(Pair("limit", "3"), Pair("text", "a b&c"), Pair("flag", "")));
}

TEST(TargetTest, TakesTheAbsoluteForm) {
  EXPECT_EQ(parse_target("http://localhost:1/v1/x").value().path, "/v1/x");
  EXPECT_EQ(parse_target("http://localhost").value().path, "/");
}

TEST(TargetTest, RefusesWhatNoClientMeans) {
  for (const char* bad :
       {"", "v1", "*", "/%", "/%4", "/%zz", "/a%00b", "/a%0d%0ab", "/../etc/passwd", "/a/%2e%2E/b",
        "/.", "/%ff", "/%c0%af", "/%ed%a0%80", "/x?a=%1f"}) {
    EXPECT_EQ(parse_target(bad).status().code(), base::Code::kInvalidArgument) << bad;
  }
}

TEST(TargetTest, KnowsUtf8) {
  EXPECT_TRUE(is_utf8("aß€😀"));
  for (const char* bad : {"\x80", "\xc3", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xe0\x80\x80"}) {
    EXPECT_FALSE(is_utf8(bad));
  }
}

}  // namespace
}  // namespace dex::gateway::http
