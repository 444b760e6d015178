#include "services/auth/principal.h"

#include <gmock/gmock.h>

#include <type_traits>

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

}  // namespace
}  // namespace dex::auth
