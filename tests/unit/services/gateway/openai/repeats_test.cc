#include "services/gateway/openai/repeats.h"

#include <gtest/gtest.h>

#include "tests/support/manual_clock.h"

namespace dex::gateway::openai {
namespace {

class RepeatsTest : public ::testing::Test {
 protected:
  std::string id(const std::string& count, const std::string& content,
                 const std::string& key = "Bearer a", const std::string& path = "/v1/x") {
    http::Request request;
    request.method = "POST";
    request.path = path;
    request.headers = {{"authorization", key}};
    if (!count.empty()) request.headers.emplace_back("x-stainless-retry-count", count);
    const auto made = repeats_.request_id(request, content);
    return made.ok() ? made.value() : made.status().reason();
  }

  support::ManualClock clock_;
  Repeats repeats_{clock_, {.keep_ms = 600'000, .most = 4}};
};

TEST_F(RepeatsTest, ARepeatHasTheIdOfTheRequestThatItRepeats) {
  const std::string first = id("0", "body");
  EXPECT_EQ(id("1", "body"), first);
  EXPECT_EQ(id("2", "body"), first);
  EXPECT_NE(id("1", "other"), first);
  EXPECT_NE(id("1", "body", "Bearer b"), first);
  EXPECT_NE(id("1", "body", "Bearer a", "/v1/y"), first);
}

TEST_F(RepeatsTest, TheSameBodyAskedForTwiceIsTwoRequests) {
  const std::string first = id("0", "body"), second = id("", "body");
  EXPECT_NE(first, second);
  EXPECT_EQ(id("1", "body"), second) << "the newest one is repeated";
}

TEST_F(RepeatsTest, ForgetsAfterTenMinutesAndWhatIsTooMuch) {
  const std::string first = id("0", "body");
  clock_.advance_ms(599'999);
  EXPECT_EQ(id("1", "body"), first);
  clock_.advance_ms(1);
  EXPECT_NE(id("1", "body"), first);
  const std::string oldest = id("0", "one");
  for (const char* body : {"two", "three", "four", "five", "six"}) id("0", body);
  EXPECT_NE(id("1", "one"), oldest);
}

TEST_F(RepeatsTest, AKeyOfTheClientsOwnWins) {
  http::Request request;
  request.headers = {{"idempotency-key", "mine"}, {"x-stainless-retry-count", "1"}};
  EXPECT_EQ(repeats_.request_id(request, "a").value(), "mine");
  for (const std::string& wrong : {std::string(), std::string(65, 'x'), std::string("a b")}) {
    request.headers[0].second = wrong;
    EXPECT_EQ(repeats_.request_id(request, "a").status().reason(), "INVALID_FIELD") << wrong;
  }
}

}  // namespace
}  // namespace dex::gateway::openai
