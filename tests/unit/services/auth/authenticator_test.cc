#include "services/auth/authenticator.h"

#include <gmock/gmock.h>

#include <string>

#include "services/auth/api_key.h"
#include "tests/support/manual_clock.h"

namespace dex::auth {
namespace {

using testing::HasSubstr;
using testing::Not;

class KeyAuthenticatorTest : public testing::Test {
 protected:
  std::string issue(const std::string& id, const std::string& tenant, uint32_t scopes,
                    int64_t expire_ms = 0) {
    std::string key = make_api_key(random_);
    known_.push_back({id, api_key_sha256(key), tenant, scopes, expire_ms});
    ring_.replace(known_);
    return key;
  }
  base::Status refusal(const std::optional<std::string>& authorization) {
    const auto who = callers_.authenticate(authorization);
    EXPECT_FALSE(who.ok()) << "let in";
    return who.status();
  }

  support::ManualClock clock_;
  base::SeededRandom random_{1};
  KeyRing ring_;
  std::vector<KnownKey> known_;
  Authenticator callers_{ring_, clock_};
};

TEST_F(KeyAuthenticatorTest, AKeyIsItsTenantWithItsScopesAlone) {
  const std::string hers = issue("key-1", "team-a", bit(Scope::kInfer) | bit(Scope::kJobsRead));
  const std::string his = issue("key-2", "team-b", kAllScopes);
  const auto she = callers_.authenticate("Bearer " + hers);
  ASSERT_TRUE(she.ok()) << she.status().to_string();
  EXPECT_EQ(she->tenant(), "team-a");
  EXPECT_EQ(she->key(), "key-1");
  EXPECT_TRUE(she->has(Scope::kInfer));
  EXPECT_FALSE(she->has(Scope::kJobsWrite));
  EXPECT_FALSE(is_operator(*she));
  const auto he = callers_.authenticate("Bearer " + his);
  ASSERT_TRUE(he.ok());
  EXPECT_EQ(he->tenant(), "team-b");
  EXPECT_FALSE(is_operator(*he)) << "an admin of another tenant operates nothing";
}

TEST_F(KeyAuthenticatorTest, WhoHasNoKeyOrAWrongOneIsRefusedByReason) {
  const std::string good = issue("key-1", "default", kAllScopes);
  EXPECT_EQ(refusal(std::nullopt).reason(), "API_KEY_MISSING");
  EXPECT_EQ(refusal("").reason(), "API_KEY_MISSING");
  EXPECT_EQ(refusal("Bearer none").reason(), "API_KEY_INVALID");
  EXPECT_EQ(refusal("Basic " + good).reason(), "API_KEY_INVALID");
  const std::string never_issued = make_api_key(random_);
  const auto unknown = refusal("Bearer " + never_issued);
  EXPECT_EQ(unknown.code(), base::Code::kUnauthenticated);
  EXPECT_EQ(unknown.reason(), "API_KEY_INVALID");
  std::string typo = good;
  typo.back() = typo.back() == 'x' ? 'y' : 'x';
  for (const std::string& key : {never_issued, typo}) {
    EXPECT_THAT(refusal("Bearer " + key).to_string(), Not(HasSubstr(key)));
  }
}

TEST_F(KeyAuthenticatorTest, AKeyEndsAtItsMomentWithoutAnybodySayingSo) {
  const std::string key = issue("key-1", "default", kAllScopes, clock_.now_ms() + 1000);
  EXPECT_TRUE(callers_.authenticate("Bearer " + key).ok());
  clock_.advance_ms(999);
  EXPECT_TRUE(callers_.authenticate("Bearer " + key).ok());
  clock_.advance_ms(1);
  EXPECT_EQ(refusal("Bearer " + key).reason(), "API_KEY_EXPIRED");
}

TEST_F(KeyAuthenticatorTest, ARevokedKeyIsUnknownFromTheNextSnapshotOn) {
  const std::string key = issue("key-1", "default", kAllScopes);
  EXPECT_TRUE(callers_.authenticate("Bearer " + key).ok());
  ring_.replace({});
  EXPECT_EQ(refusal("Bearer " + key).reason(), "API_KEY_INVALID");
}

TEST_F(KeyAuthenticatorTest, BeforeTheFirstSnapshotNobodyIsLetInNorCalledWrong) {
  const auto status = refusal("Bearer " + make_api_key(random_));
  EXPECT_EQ(status.code(), base::Code::kUnavailable);
  EXPECT_EQ(status.reason(), "STORE_UNAVAILABLE");
  EXPECT_EQ(refusal(std::nullopt).reason(), "API_KEY_MISSING");
}

TEST(FromGatewayTest, TheCallerIsWhomTheGatewayNames) {
  const auto who = Authenticator::from_gateway("team-a", "jobs:read infer new:scope", "key-1");
  EXPECT_EQ(who.tenant(), "team-a");
  EXPECT_EQ(who.key(), "key-1");
  EXPECT_EQ(who.scopes(), bit(Scope::kJobsRead) | bit(Scope::kInfer));
  EXPECT_EQ(scope_words(who.scopes()), "jobs:read infer");
  EXPECT_EQ(Authenticator::from_gateway("default", "", std::nullopt).scopes(), 0U);
  EXPECT_EQ(Authenticator::from_gateway("default", std::nullopt, std::nullopt).scopes(),
            Authenticator::from_gateway(std::nullopt, std::nullopt, std::nullopt).scopes())
      << "a gateway from before there were keys";
  EXPECT_TRUE(is_operator(Authenticator::from_gateway(std::nullopt, std::nullopt, std::nullopt)));
}

TEST(ScopeWordsTest, GoThereAndBack) {
  for (uint32_t scopes = 0; scopes <= kAllScopes; ++scopes) {
    ASSERT_EQ(scopes_in(scope_words(scopes)), scopes);
  }
  EXPECT_EQ(scopes_in("  admin  files:read "), bit(Scope::kAdmin) | bit(Scope::kFilesRead));
  EXPECT_FALSE(find_scope("unknown"));
}

}  // namespace
}  // namespace dex::auth
