#include "scheduler/store/alias_repository.h"

#include <algorithm>

#include "scheduler/store/alphabet.h"
#include "scheduler/store/job_fields.h"
#include "scheduler/store/refusals.h"

namespace dex::store {

namespace {

AliasRecord alias_from(const Fields& f) {
  AliasRecord alias;
  alias.name = text(f, "name");
  alias.tenant = text(f, "tenant");
  alias.adapter = text(f, "adapter");
  alias.created_ms = number(f, "created_ms");
  alias.revision = number(f, "rev");
  const auto words = split_words(text(f, "targets"));
  for (size_t i = 0; i + 2 < words.size(); i += 3) {
    alias.targets.push_back({words[i + 1], number({{"ms", words[i]}}, "ms"), words[i + 2] == "1"});
  }
  return alias;
}

}  // namespace

bool is_alias(std::string_view name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > 64 || !plain(name.front()) || name == "none") return false;
  return std::all_of(name.begin(), name.end(),
                     [&plain](char c) { return plain(c) || c == '.' || c == '_' || c == '-'; });
}

base::Status alias_not_found(const std::string& name) {
  return base::not_found("RESOURCE_NOT_FOUND", "There is no alias '" + shown(name) + "'.")
      .with_metadata("resource_type", "alias")
      .with_metadata("resource_name", shown(name));
}

base::Status alias_changed(const std::string& name, const std::string& etag) {
  return base::Status(base::Code::kAborted, "ETAG_MISMATCH",
                      etag.empty()
                          ? "There is no alias '" + name + "' any more."
                          : "The alias '" + name + "' has changed since: its etag is " + etag + ".")
      .with_metadata("etag", etag);
}

base::Status alias_taken(const std::string& name, const std::string& adapter) {
  return base::Status(base::Code::kAlreadyExists, "NAME_TAKEN",
                      "The alias '" + name + "' points to '" + adapter +
                          "' already; move it without asking for a new one.")
      .with_metadata("adapter", adapter);
}

base::Result<AliasRepository::Done> AliasRepository::change(const std::string& name,
                                                            const std::string& adapter,
                                                            std::vector<std::string> args) {
  const std::string tenant = args.at(1);
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("alias", std::move(args)));
  const std::string& word = reply.str(0);
  if (word == "OK") return Done{alias_from(reply.at(1).fields()), false};
  if (word == "DUP") {
    Done done;
    done.replayed = true;
    if (auto now = get(tenant, name); now.ok()) done.alias = std::move(now).value();
    done.alias.name = name;
    return done;
  }
  if (word == "CONFLICT") return idempotency_conflict(reply.str(1));
  if (word == "STALE") return alias_changed(name, reply.str(1));
  if (word == "TAKEN") return alias_taken(name, reply.str(1));
  if (word == "FULL") {
    return base::Status(base::Code::kResourceExhausted, "QUOTA_EXCEEDED",
                        "The tenant has " + reply.str(1) +
                            " aliases, the most there may be; delete one that nobody uses.");
  }
  if (word != "NOTFOUND") return unexpected("alias", reply);
  return reply.str(1) == "adapter" ? adapter_not_found(adapter) : alias_not_found(name);
}

base::Result<AliasRepository::Done> AliasRepository::set(const std::string& tenant,
                                                         const Change& change) {
  DEX_RETURN_IF_ERROR(check_tenant(tenant));
  DEX_RETURN_IF_ERROR(check_request(change.request));
  if (!is_word(change.adapter)) return adapter_not_found(change.adapter);
  if (!is_alias(change.name)) return alias_not_found(change.name);
  return this->change(
      change.name, change.adapter,
      {"set", tenant, change.request.id, change.request.digest,
       std::to_string(store_.times().idempotency_ms), change.name, change.adapter, change.etag,
       change.create_only ? "1" : "0", change.gates_overridden ? "1" : "0"});
}

base::Result<AliasRepository::Done> AliasRepository::remove(const std::string& tenant,
                                                            const std::string& name,
                                                            const std::string& etag,
                                                            const RequestKey& request) {
  DEX_RETURN_IF_ERROR(check_tenant(tenant));
  DEX_RETURN_IF_ERROR(check_request(request));
  if (!is_alias(name)) return alias_not_found(name);
  return change(name, "",
                {"delete", tenant, request.id, request.digest,
                 std::to_string(store_.times().idempotency_ms), name, etag});
}

base::Result<AliasRecord> AliasRepository::get(const std::string& tenant, const std::string& name) {
  if (!is_name(tenant) || !is_alias(name)) return alias_not_found(name);
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("alias", {"get", tenant, name}));
  if (reply.str(0) == "NOTFOUND") return alias_not_found(name);
  if (reply.str(0) != "OK") return unexpected("alias", reply);
  return alias_from(reply.at(1).fields());
}

base::Result<std::vector<AliasRecord>> AliasRepository::list(const std::string& tenant,
                                                             const Cursor& cursor, int count) {
  DEX_RETURN_IF_ERROR(check_tenant(tenant));
  const std::string ms = cursor.before_ms < 0 ? "" : std::to_string(cursor.before_ms);
  DEX_ASSIGN_OR_RETURN(
      const Reply reply,
      store_.run("alias", {"list", tenant, std::to_string(count), ms, cursor.before_id}));
  if (reply.str(0) != "OK") return unexpected("alias", reply);
  std::vector<AliasRecord> aliases;
  for (size_t i = 1; i < reply.elements.size(); ++i)
    aliases.push_back(alias_from(reply.at(i).at(2).fields()));
  return aliases;
}

}  // namespace dex::store
