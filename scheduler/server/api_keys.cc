#include "scheduler/server/api_keys.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "scheduler/server/asked_tenant.h"
#include "scheduler/server/job_id.h"
#include "scheduler/server/page.h"
#include "scheduler/server/times.h"
#include "scheduler/store/alphabet.h"
#include "services/auth/api_key.h"

namespace dex::server {

namespace {

constexpr size_t kLongestName = 64;

base::Status check_name(const std::string& name) {
  if (name.empty()) return missing("name");
  const bool plain =
      std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (name.size() <= kLongestName && plain) return {};
  return base::invalid_field("name", "must be 1 to 64 bytes of text in one line");
}

// The set, if each of them is one and the caller has it.
base::Result<uint32_t> scopes_of(const auth::Principal& who,
                                 const google::protobuf::RepeatedPtrField<std::string>& names) {
  if (names.empty()) return missing("scopes");
  uint32_t scopes = 0;
  for (const std::string& name : names) {
    const auto scope = auth::find_scope(name);
    if (!scope) {
      return base::invalid_field("scopes", "'" + store::shown(name) + "' is none of " +
                                               auth::scope_words(auth::kAllScopes));
    }
    DEX_RETURN_IF_ERROR(auth::require(who, *scope));
    scopes |= auth::bit(*scope);
  }
  return scopes;
}

base::Result<int64_t> expiry_of(const v1::CreateApiKeyRequest& request, int64_t now_ms) {
  if (!request.has_expire_time()) return 0;
  const int64_t expire_ms = unix_ms(request.expire_time());
  if (expire_ms > now_ms) return expire_ms;
  return base::bad_field("VALUE_OUT_OF_RANGE", "expire_time", "must be in the future");
}

void add_scopes(uint32_t scopes, google::protobuf::RepeatedPtrField<std::string>& names) {
  for (uint32_t n = 0; n <= static_cast<uint32_t>(auth::Scope::kAdmin); ++n) {
    const auto scope = static_cast<auth::Scope>(n);
    if ((scopes & auth::bit(scope)) != 0) names.Add(std::string(auth::name(scope)));
  }
}

v1::ApiKey view(const store::KeyRecord& record, int64_t now_ms) {
  v1::ApiKey key;
  key.set_id(record.id);
  key.set_name(record.name);
  key.set_tenant(record.tenant);
  add_scopes(auth::scopes_in(record.scopes), *key.mutable_scopes());
  key.set_prefix(record.prefix);
  if (record.created_ms != 0) *key.mutable_create_time() = timestamp(record.created_ms);
  if (record.expire_ms != 0) *key.mutable_expire_time() = timestamp(record.expire_ms);
  if (record.used_ms != 0) *key.mutable_last_used_time() = timestamp(record.used_ms);
  if (record.revoked_ms != 0) *key.mutable_revoke_time() = timestamp(record.revoked_ms);
  const bool expired = record.expire_ms != 0 && record.expire_ms <= now_ms;
  key.set_state(record.revoked_ms != 0 ? v1::ApiKey::STATE_REVOKED
                : expired              ? v1::ApiKey::STATE_EXPIRED
                                       : v1::ApiKey::STATE_ACTIVE);
  return key;
}

}  // namespace

v1::Caller ApiKeys::who_am_i(const auth::Principal& who) {
  v1::Caller caller;
  caller.set_tenant(who.tenant());
  add_scopes(who.scopes(), *caller.mutable_scopes());
  caller.set_key(who.key());
  caller.set_operator_(auth::is_operator(who));
  return caller;
}

base::Result<Answer<v1::ApiKey>> ApiKeys::create(const auth::Principal& who,
                                                 const v1::CreateApiKeyRequest& request) {
  store::KeyRecord record;
  DEX_ASSIGN_OR_RETURN(record.tenant, asked_tenant(who, request.tenant()));
  DEX_RETURN_IF_ERROR(check_name(request.name()));
  DEX_ASSIGN_OR_RETURN(const uint32_t scopes, scopes_of(who, request.scopes()));
  DEX_ASSIGN_OR_RETURN(record.expire_ms, expiry_of(request, parts_.clock.now_ms()));
  DEX_ASSIGN_OR_RETURN(const auto identity, identity_of(request, parts_.ids));
  record.name = request.name();
  record.scopes = auth::scope_words(scopes);
  if (request.validate_only()) {
    return Answer<v1::ApiKey>{view(record, parts_.clock.now_ms()), false};
  }
  const std::string secret = auth::make_api_key(parts_.random);
  record.id = parts_.ids.make("key-");
  record.sha256 = auth::api_key_sha256(secret);
  record.prefix = auth::api_key_prefix(secret);
  DEX_ASSIGN_OR_RETURN(const auto made, parts_.keys.create(record, who.tenant(), identity));
  if (changed_) changed_();
  DEX_ASSIGN_OR_RETURN(const auto stored, parts_.keys.get(made.id));
  v1::ApiKey key = view(stored, parts_.clock.now_ms());
  // The store may have been sent the script twice: what counts is whose hash it holds.
  if (stored.sha256 == record.sha256) key.set_secret(secret);
  return Answer<v1::ApiKey>{std::move(key), made.replayed};
}

base::Result<v1::ListApiKeysResponse> ApiKeys::list(const auth::Principal& who,
                                                    const v1::ListApiKeysRequest& request) {
  DEX_ASSIGN_OR_RETURN(const std::string tenant, asked_tenant(who, request.tenant()));
  DEX_ASSIGN_OR_RETURN(const int wanted, page_size(request.page_size()));
  DEX_ASSIGN_OR_RETURN(auto cursor, parse_page_token(request.page_token()));
  v1::ListApiKeysResponse page;
  while (true) {
    DEX_ASSIGN_OR_RETURN(const auto records, parts_.keys.list(tenant, cursor, kStorePage));
    for (const auto& record : records) {
      if (page.keys_size() == wanted) {
        page.set_next_page_token(page_token(cursor.before_ms, cursor.before_id));
        return page;
      }
      cursor = {record.created_ms, record.id};
      *page.add_keys() = view(record, parts_.clock.now_ms());
    }
    if (static_cast<int>(records.size()) < kStorePage) return page;
  }
}

base::Result<Answer<v1::ApiKey>> ApiKeys::revoke(const auth::Principal& who,
                                                 const v1::RevokeApiKeyRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdmin));
  if (request.id().empty()) return missing("id");
  DEX_ASSIGN_OR_RETURN(const auto identity, identity_of(request, parts_.ids));
  DEX_ASSIGN_OR_RETURN(const bool replayed, parts_.keys.revoke(request.id(), who.tenant(),
                                                               auth::is_operator(who), identity));
  if (changed_) changed_();
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.keys.get(request.id()));
  return Answer<v1::ApiKey>{view(record, parts_.clock.now_ms()), replayed};
}

base::Status ApiKeys::report(const internal::v1::ReportUseRequest& request) {
  const int64_t now_ms = parts_.clock.now_ms();
  std::vector<std::pair<std::string, int64_t>> uses;
  for (const auto& key : request.keys()) {
    uses.emplace_back(key.id(), std::min<int64_t>(key.last_used_ms(), now_ms));
  }
  return parts_.keys.used(uses);
}

base::Status ApiKeys::ensure_admin(const std::string& secret) {
  if (!auth::is_api_key(secret)) {
    return base::invalid_field("--admin-key-file",
                               "must hold one API key, dex_ and 49 letters and digits; remove the "
                               "file and dexd makes a new one");
  }
  store::KeyRecord record;
  record.id = parts_.ids.make("key-");
  record.tenant = std::string(auth::kOperatorTenant);
  record.name = "admin.key";
  record.sha256 = auth::api_key_sha256(secret);
  record.prefix = auth::api_key_prefix(secret);
  record.scopes = auth::scope_words(auth::kAllScopes);
  DEX_ASSIGN_OR_RETURN(const bool made, parts_.keys.ensure(record));
  if (made) {
    spdlog::info("the operator's first key is {}", record.id);
    if (changed_) changed_();
  }
  return {};
}

}  // namespace dex::server
