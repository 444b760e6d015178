#include "services/auth/principal.h"

#include <gmock/gmock.h>

#include <string>
#include <type_traits>
#include <utility>

#include "services/auth/authenticator.h"

namespace dex::auth {
namespace {

static_assert(!std::is_default_constructible_v<Principal>);

TEST(PrincipalTest, OnLoopbackTheMachineIsOneTenantWithEveryScope) {
  const Authenticator authenticator;
  for (const std::optional<std::string_view> header :
       {std::optional<std::string_view>(), std::optional<std::string_view>("Bearer none")}) {
    const auto who = authenticator.authenticate(header);
    ASSERT_TRUE(who.ok());
    EXPECT_EQ(who.value().tenant(), "default");
    for (uint32_t scope = 0; scope <= static_cast<uint32_t>(Scope::kAdmin); ++scope) {
      EXPECT_TRUE(require(who.value(), static_cast<Scope>(scope)).ok());
      EXPECT_NE(name(static_cast<Scope>(scope)), "unknown");
    }
  }
}

TEST(PrincipalTest, AScopeThatIsMissingIsNamed) {
  const auto who = Authenticator("hers", {Scope::kJobsRead, Scope::kAdmin}).authenticate({});
  ASSERT_TRUE(who.ok());
  EXPECT_EQ(who.value().tenant(), "hers");
  EXPECT_TRUE(require(who.value(), Scope::kJobsRead).ok());
  EXPECT_TRUE(require(who.value(), Scope::kAdmin).ok());
  const auto refused = require(who.value(), Scope::kJobsWrite);
  EXPECT_EQ(refused.code(), base::Code::kPermissionDenied);
  EXPECT_EQ(refused.reason(), "SCOPE_MISSING");
  const std::pair<std::string, std::string> scope("scope", "jobs:write");
  EXPECT_THAT(refused.metadata(), testing::ElementsAre(scope));
}

}  // namespace
}  // namespace dex::auth
