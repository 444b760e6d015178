#include "services/auth/rate_limiter.h"

#include <gtest/gtest.h>

#include "tests/support/manual_clock.h"

namespace dex::auth {
namespace {

int taken(RateLimiter& limiter, const std::string& tenant, int tries) {
  int good = 0;
  for (int i = 0; i < tries; ++i) good += limiter.take(tenant).ok() ? 1 : 0;
  return good;
}

TEST(RateLimiterTest, ATenantHasItsRequestsAMinuteAndTakesNobodyElses) {
  support::ManualClock clock;
  RateLimiter limiter(600, clock);
  EXPECT_EQ(taken(limiter, "a", 1000), 600);
  EXPECT_EQ(taken(limiter, "b", 600), 600);
  const auto refused = limiter.take("a");
  EXPECT_EQ(refused.code(), base::Code::kResourceExhausted);
  EXPECT_EQ(refused.reason(), "RATE_LIMITED");
  EXPECT_NE(refused.message().find("'a'"), std::string::npos);
  EXPECT_NE(refused.message().find("100 ms"), std::string::npos) << refused.message();
}

TEST(RateLimiterTest, TheBucketFillsEvenlyAndNeverOver) {
  support::ManualClock clock;
  RateLimiter limiter(600, clock);
  ASSERT_EQ(taken(limiter, "a", 600), 600);
  clock.advance_ms(1000);
  EXPECT_EQ(taken(limiter, "a", 1000), 10);
  clock.advance_ms(10 * 60'000);
  EXPECT_EQ(taken(limiter, "a", 2000), 600);
}

TEST(RateLimiterTest, ZeroMeansNoLimit) {
  support::ManualClock clock;
  RateLimiter limiter(0, clock);
  EXPECT_EQ(taken(limiter, "a", 5000), 5000);
}

}  // namespace
}  // namespace dex::auth
