#include "services/gateway/routing/route_table.h"

#include <algorithm>
#include <unordered_set>

#include "services/auth/principal.h"

namespace dex::gateway {

namespace {

constexpr std::string_view kNoAdapter = "none";

std::string quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

std::string alias_key(std::string_view tenant, std::string_view name) {
  return std::string(tenant) + "/" + std::string(name);
}

Target target_of(const internal::v1::RouteSnapshot::AdapterRoute& adapter,
                 const std::string& alias) {
  return {adapter.base(), adapter.id(), adapter.content_sha256(), adapter.path(), alias};
}

template <typename Range>
bool contains(const Range& range, std::string_view text) {
  return std::find(range.begin(), range.end(), text) != range.end();
}

}  // namespace

RouteTable::RouteTable(internal::v1::RouteSnapshot snapshot) : snapshot_(std::move(snapshot)) {
  for (const auto& adapter : snapshot_.adapters()) adapters_.emplace(adapter.id(), &adapter);
  for (const auto& alias : snapshot_.aliases())
    aliases_.emplace(alias_key(alias.adapter().tenant(), alias.name()), &alias);
}

base::Result<Target> RouteTable::find(std::string_view field, std::string_view tenant,
                                      std::string_view name) const {
  if (contains(snapshot_.bases(), name)) return Target{std::string(name)};
  const auto it = adapters_.find(name);
  if (it != adapters_.end() && it->second->tenant() == tenant) return target_of(*it->second, "");
  if (const auto alias = aliases_.find(alias_key(tenant, name)); alias != aliases_.end())
    return target_of(alias->second->adapter(), alias->second->name());
  std::string bases;
  for (const auto& base : snapshot_.bases()) bases += (bases.empty() ? "" : ", ") + base;
  return base::not_found("MODEL_NOT_FOUND",
                         std::string(field) + ": there is no model, adapter or alias " +
                             quoted(name) +
                             "; base models here: " + (bases.empty() ? "none" : bases))
      .with_metadata("resource_type", "model")
      .with_metadata("resource_name", std::string(name))
      .with_metadata("param", std::string(field));
}

base::Result<Target> RouteTable::resolve(std::string_view tenant, std::string_view model,
                                         std::string_view adapter) const {
  if (model.empty() && (adapter.empty() || adapter == kNoAdapter)) {
    return base::Status(base::Code::kInvalidArgument, "MISSING_FIELD",
                        "model: name a base model or an adapter")
        .with_violation("model", "name a base model or an adapter");
  }
  if (model.empty()) return find("adapter", tenant, adapter);
  DEX_ASSIGN_OR_RETURN(Target by_model, find("model", tenant, model));
  if (adapter.empty()) return by_model;
  if (adapter == kNoAdapter) return Target{by_model.base};
  DEX_ASSIGN_OR_RETURN(Target by_adapter, find("adapter", tenant, adapter));
  if (by_adapter.base != by_model.base) {
    return base::failed_precondition(
               "ADAPTER_MISMATCH", "adapter: " + quoted(adapter) + " belongs to the base model " +
                                       quoted(by_adapter.base) + ", but model is " + quoted(model))
        .with_metadata("param", "adapter");
  }
  return by_adapter;
}

std::vector<RouteTable::Worker> RouteTable::workers(const Target& target) const {
  std::vector<Worker> found;
  for (const auto& route : snapshot_.routes()) {
    if (route.base() != target.base) continue;
    found.push_back({route.worker(), route.inference_address(),
                     !target.adapter.empty() && contains(route.adapters(), target.adapter),
                     route.running() + route.waiting()});
  }
  return found;
}

std::vector<RouteTable::Worker> RouteTable::every_worker() const {
  std::vector<Worker> found;
  std::unordered_set<std::string_view> seen;
  for (const auto& route : snapshot_.routes()) {
    if (!seen.insert(route.inference_address()).second) continue;
    found.push_back(
        {route.worker(), route.inference_address(), false, route.running() + route.waiting()});
  }
  return found;
}

bool RouteTable::has_address(std::string_view address) const {
  return std::any_of(snapshot_.routes().begin(), snapshot_.routes().end(),
                     [address](const auto& route) { return route.inference_address() == address; });
}

std::vector<auth::KnownKey> RouteTable::keys() const {
  std::vector<auth::KnownKey> keys;
  for (const auto& key : snapshot_.keys()) {
    keys.push_back(
        {key.id(), key.sha256(), key.tenant(), auth::scopes_in(key.scopes()), key.expire_ms()});
  }
  return keys;
}

}  // namespace dex::gateway
