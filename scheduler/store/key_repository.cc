#include "scheduler/store/key_repository.h"

#include <algorithm>

#include "scheduler/store/alphabet.h"
#include "scheduler/store/job_fields.h"

namespace dex::store {

namespace {

constexpr int kPage = 500;  // of key.lua

base::Status no_such_key(const std::string& id) {
  return base::not_found("RESOURCE_NOT_FOUND", "There is no API key '" + shown(id) + "'.")
      .with_metadata("resource_type", "api_key")
      .with_metadata("resource_name", shown(id));
}

KeyRecord key_from(const Fields& fields) {
  KeyRecord key;
  key.id = text(fields, "id");
  key.tenant = text(fields, "tenant");
  key.name = text(fields, "name");
  key.sha256 = text(fields, "sha");
  key.prefix = text(fields, "prefix");
  key.scopes = text(fields, "scopes");
  key.created_ms = number(fields, "created_ms");
  key.expire_ms = number(fields, "expire_ms");
  key.used_ms = number(fields, "used_ms");
  key.revoked_ms = number(fields, "revoked_ms");
  return key;
}

base::Status check_record(const KeyRecord& key) {
  DEX_RETURN_IF_ERROR(check_store_id("id", key.id));
  DEX_RETURN_IF_ERROR(check_tenant(key.tenant));
  return check_store_id("sha256", key.sha256);
}

}  // namespace

base::Result<KeyRepository::Made> KeyRepository::create(const KeyRecord& key,
                                                        const std::string& caller,
                                                        const RequestKey& request) {
  DEX_RETURN_IF_ERROR(check_record(key));
  DEX_RETURN_IF_ERROR(check_tenant(caller));
  DEX_RETURN_IF_ERROR(check_request(request));
  DEX_ASSIGN_OR_RETURN(
      const Reply reply,
      store_.run("key", {"create", caller, request.id, request.digest,
                         std::to_string(store_.times().idempotency_ms), std::to_string(kMostKeys),
                         key.id, key.tenant, key.name, key.sha256, key.prefix, key.scopes,
                         std::to_string(key.expire_ms)}));
  const std::string& word = reply.str(0);
  if (word == "OK") return Made{reply.str(1), false};
  if (word == "DUP") return Made{reply.str(1), true};
  if (word == "CONFLICT") return idempotency_conflict(reply.str(1));
  if (word != "QUOTA") return unexpected("key", reply);
  return base::Status(base::Code::kResourceExhausted, "QUOTA_EXCEEDED",
                      "The tenant '" + key.tenant + "' has " + reply.str(1) +
                          " API keys that open something, and may have " + reply.str(2) + ".")
      .with_metadata("subject", "tenant:" + key.tenant);
}

base::Result<bool> KeyRepository::ensure(const KeyRecord& key) {
  DEX_RETURN_IF_ERROR(check_record(key));
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("key", {"ensure", key.id, key.tenant, key.name,
                                                             key.sha256, key.prefix, key.scopes}));
  if (reply.str(0) == "OK") return reply.num(2) == 1;
  if (reply.str(0) != "REVOKED") return unexpected("key", reply);
  return base::Status(base::Code::kUnauthenticated, "API_KEY_INVALID",
                      "The key " + reply.str(1) + " was revoked.");
}

base::Result<bool> KeyRepository::revoke(const std::string& id, const std::string& caller,
                                         bool any_tenant, const RequestKey& request) {
  if (!is_store_id(id)) return no_such_key(id);
  DEX_RETURN_IF_ERROR(check_tenant(caller));
  DEX_RETURN_IF_ERROR(check_request(request));
  DEX_ASSIGN_OR_RETURN(const Reply reply,
                       store_.run("key", {"revoke", caller, request.id, request.digest,
                                          std::to_string(store_.times().idempotency_ms), id,
                                          any_tenant ? "1" : "0"}));
  const std::string& word = reply.str(0);
  if (word == "OK") return false;
  if (word == "DUP") return true;
  if (word == "CONFLICT") return idempotency_conflict(reply.str(1));
  if (word == "NOTFOUND") return no_such_key(id);
  return unexpected("key", reply);
}

base::Result<KeyRecord> KeyRepository::get(const std::string& id) {
  if (!is_store_id(id)) return no_such_key(id);
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.command({"HGETALL", store_.key("key:" + id)}));
  if (reply.elements.empty()) return no_such_key(id);
  return key_from(reply.fields());
}

base::Result<std::vector<KeyRecord>> KeyRepository::list(const std::string& tenant, Cursor cursor,
                                                         int count) {
  DEX_RETURN_IF_ERROR(check_tenant(tenant));
  DEX_ASSIGN_OR_RETURN(const auto rows, store_.list("key", tenant, cursor, count));
  std::vector<KeyRecord> keys;
  for (const Reply& row : rows) keys.push_back(key_from(row.at(2).fields()));
  return keys;
}

base::Status KeyRepository::used(const std::vector<std::pair<std::string, int64_t>>& uses) {
  for (size_t from = 0; from < uses.size(); from += kPage) {
    const size_t end = std::min(uses.size(), from + kPage);
    std::vector<std::string> args;
    for (size_t i = from; i < end; ++i) {
      if (!is_store_id(uses[i].first)) continue;
      args.push_back(uses[i].first);
      args.push_back(std::to_string(uses[i].second));
    }
    if (args.empty()) continue;
    args.insert(args.begin(), {"used", std::to_string(args.size() / 2)});
    DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("key", std::move(args)));
    if (reply.str(0) != "OK") return unexpected("key", reply);
  }
  return {};
}

base::Result<std::vector<KeyRecord>> KeyRepository::all() {
  std::vector<KeyRecord> keys;
  std::string tenant, ms, id;
  while (true) {
    DEX_ASSIGN_OR_RETURN(const Reply page,
                         store_.run("key", {"page", std::to_string(kPage), tenant, ms, id}));
    if (page.str(0) != "OK") return unexpected("key", page);
    for (size_t i = 1; i < page.elements.size(); ++i) {
      const Reply& row = page.at(i);
      id = row.str(0);
      ms = row.str(1);
      tenant = row.str(2);
      if (row.str(3).empty() || row.num(6) != 0) continue;  // gone meanwhile, or revoked
      KeyRecord& key = keys.emplace_back();
      key.id = id;
      key.tenant = tenant;
      key.sha256 = row.str(3);
      key.scopes = row.str(4);
      key.expire_ms = row.num(5);
    }
    if (page.elements.size() < 1 + kPage) return keys;
  }
}

}  // namespace dex::store
