#include "scheduler/server/aliases.h"

#include <algorithm>
#include <utility>

#include "scheduler/server/job_id.h"
#include "scheduler/server/job_view.h"
#include "scheduler/server/page.h"
#include "scheduler/server/times.h"

namespace dex::server {

namespace {

v1::AdapterAlias alias_view(const store::AliasRecord& record) {
  v1::AdapterAlias alias;
  alias.set_alias(record.name);
  if (record.adapter.empty()) return alias;  // of a repeated removal
  alias.set_adapter(record.adapter);
  alias.set_base_model(base_of_adapter(record.adapter));
  for (const auto& was : record.targets) {
    auto& target = *alias.add_targets();
    target.set_adapter(was.adapter);
    *target.mutable_set_time() = timestamp(was.set_ms);
    target.set_gates_overridden(was.gates_overridden);
  }
  *alias.mutable_create_time() = timestamp(record.created_ms);
  alias.set_etag(std::to_string(record.revision));
  return alias;
}

void add_content(const std::string& sha256, v1::AdapterAlias& alias) {
  alias.set_content_sha256(sha256);
  alias.set_version(sha256.substr(0, 12));
}

// Why the adapter is not promotable, which is a gate that blocks or a branch that does nothing.
base::Status gate_not_passed(const v1::Adapter& adapter) {
  std::string gates;
  for (const auto& gate : adapter.gate_results()) {
    if (gate.passed() || gate.on_fail() != "BLOCK_ALIAS") continue;
    gates += (gates.empty() ? "" : "; ") + gate.gate();
    if (!gate.condition().empty()) gates += " (" + gate.condition() + ")";
  }
  const std::string why = gates.empty() ? "its branch is INERT" : "it has not passed " + gates;
  return base::failed_precondition(
      "GATE_NOT_PASSED", "No alias may point to '" + adapter.id() + "': " + why +
                             ". With the scope admin, override_gates sets it all the same.");
}

}  // namespace

base::Status Aliases::check_name(const std::string& alias) const {
  if (alias.empty()) return missing("alias");
  if (!store::is_alias(alias)) {
    return base::invalid_field(
        "alias",
        "must be 1 to 64 characters of a-z, 0-9, '.', '_', '-', begin with a "
        "letter or a digit, and not be 'none'");
  }
  const auto& models = parts_.models.models();
  const bool is_base = std::any_of(models.begin(), models.end(),
                                   [&](const auto& model) { return model.name() == alias; });
  if (is_base) return base::invalid_field("alias", "'" + alias + "' is a base model's name");
  return {};
}

base::Status Aliases::check_now(const std::string& tenant,
                                const v1::SetAdapterAliasRequest& request) {
  const auto now = parts_.aliases.get(tenant, request.alias());
  if (!now.ok() && now.status().code() != base::Code::kNotFound) return now.status();
  const std::string etag = now.ok() ? std::to_string(now->revision) : "";
  if (!request.etag().empty() && request.etag() != etag)
    return store::alias_changed(request.alias(), etag);
  if (request.create_only() && now.ok()) return store::alias_taken(now->name, now->adapter);
  return {};
}

base::Result<v1::AdapterAlias> Aliases::whole(const store::AliasRecord& record) {
  auto alias = alias_view(record);
  if (record.adapter.empty()) return alias;
  const auto adapter = parts_.adapters.get(record.tenant, record.adapter);
  // Gone since: the alias was moved or deleted in between, and nobody holds an old target.
  if (!adapter.ok() && adapter.status().code() != base::Code::kNotFound) return adapter.status();
  if (adapter.ok()) add_content(adapter->sha256, alias);
  return alias;
}

base::Result<Aliases::Begun> Aliases::begin(const auth::Principal& who,
                                            const v1::SetAdapterAliasRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdaptersServe));
  if (request.override_gates()) DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdmin));
  DEX_RETURN_IF_ERROR(check_name(request.alias()));
  if (request.adapter().empty()) return missing("adapter");
  Begun begun;
  DEX_ASSIGN_OR_RETURN(begun.change.request, identity_of(request, parts_.ids));
  // A repeat is answered whatever has happened to alias and adapter since.
  DEX_ASSIGN_OR_RETURN(const auto made, parts_.store.made_by(who.tenant(), begun.change.request));
  if (!made.empty()) {
    begun.over = begun.replayed = true;
    begun.alias.set_alias(request.alias());
    const auto now = parts_.aliases.get(who.tenant(), request.alias());
    if (!now.ok()) {
      if (now.status().code() != base::Code::kNotFound) return now.status();
      return begun;
    }
    DEX_ASSIGN_OR_RETURN(begun.alias, whole(*now));
    return begun;
  }
  DEX_ASSIGN_OR_RETURN(const auto record,
                       parts_.adapter_logic.find(who.tenant(), request.adapter()));
  const auto adapter = adapter_view(record);
  const bool blocked = adapter.has_promotable() && !adapter.promotable();
  if (blocked && !request.override_gates()) return gate_not_passed(adapter);
  DEX_RETURN_IF_ERROR(check_now(who.tenant(), request));
  DEX_RETURN_IF_ERROR(Adapters::check_loadable(adapter));
  begun.change.name = request.alias();
  begun.change.adapter = record.id;
  begun.change.etag = request.etag();
  begun.change.create_only = request.create_only();
  begun.change.gates_overridden = blocked;
  if (request.validate_only()) {
    begun.over = true;
    begun.alias.set_alias(request.alias());
    begun.alias.set_adapter(record.id);
    begun.alias.set_base_model(adapter.base_model());
    add_content(record.sha256, begun.alias);
    return begun;
  }
  DEX_RETURN_IF_ERROR(parts_.adapters.desire(who.tenant(), record.id, true).status());
  changed_();
  return begun;
}

base::Result<Aliases::Set> Aliases::set(const auth::Principal& who,
                                        const store::AliasRepository::Change& change) {
  DEX_ASSIGN_OR_RETURN(const auto done, parts_.aliases.set(who.tenant(), change));
  changed_();
  DEX_ASSIGN_OR_RETURN(auto alias, whole(done.alias));
  return Set{std::move(alias), done.replayed, done.alias.revision};
}

base::Result<Answer<v1::AdapterAlias>> Aliases::remove(
    const auth::Principal& who, const v1::DeleteAdapterAliasRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdaptersServe));
  if (request.alias().empty()) return missing("alias");
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, parts_.ids));
  DEX_ASSIGN_OR_RETURN(const auto done,
                       parts_.aliases.remove(who.tenant(), request.alias(), request.etag(), key));
  changed_();
  if (done.replayed) {
    v1::AdapterAlias gone;
    gone.set_alias(request.alias());
    return Answer<v1::AdapterAlias>{std::move(gone), true};
  }
  DEX_ASSIGN_OR_RETURN(auto alias, whole(done.alias));
  return Answer<v1::AdapterAlias>{std::move(alias), false};
}

base::Result<v1::ListAdapterAliasesResponse> Aliases::list(
    const auth::Principal& who, const v1::ListAdapterAliasesRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdaptersRead));
  DEX_ASSIGN_OR_RETURN(const int wanted, page_size(request.page_size()));
  DEX_ASSIGN_OR_RETURN(auto cursor, parse_page_token(request.page_token()));
  v1::ListAdapterAliasesResponse page;
  size_t bytes = 0;
  while (true) {
    DEX_ASSIGN_OR_RETURN(const auto records, parts_.aliases.list(who.tenant(), cursor, kStorePage));
    for (const auto& record : records) {
      if (page.aliases_size() == wanted || bytes >= kListBytes) {
        page.set_next_page_token(page_token(cursor.before_ms, cursor.before_id));
        return page;
      }
      cursor = {record.created_ms, record.name};
      DEX_ASSIGN_OR_RETURN(*page.add_aliases(), whole(record));
      bytes += page.aliases().rbegin()->ByteSizeLong();
    }
    if (static_cast<int>(records.size()) < kStorePage) return page;
  }
}

}  // namespace dex::server
