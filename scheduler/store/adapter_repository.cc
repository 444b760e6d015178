#include "scheduler/store/adapter_repository.h"

#include "scheduler/store/alphabet.h"
#include "scheduler/store/job_fields.h"
#include "scheduler/store/refusals.h"

namespace dex::store {

namespace {

constexpr size_t kWantedPage = 100;  // a record has the statistics of its training

base::Status adapter_in_use(const std::string& id, const std::string& job,
                            const std::string& aliases) {
  if (!aliases.empty()) {
    const std::string alias = split_words(aliases).front();
    return base::failed_precondition("ADAPTER_IN_USE", "The alias '" + alias +
                                                           "' points to the adapter '" + shown(id) +
                                                           "'; set it to another one or delete it.")
        .with_metadata("alias", alias);
  }
  if (job.empty()) {
    return base::failed_precondition(
        "ADAPTER_IN_USE", "The adapter '" + shown(id) + "' is to be held by workers; unload it.");
  }
  return base::failed_precondition("ADAPTER_IN_USE", "The live job " + job +
                                                         " needs the adapter '" + shown(id) +
                                                         "'; cancel it or wait for its end.")
      .with_metadata("job", job);
}

}  // namespace

AdapterRecord adapter_from(const Fields& f) {
  AdapterRecord adapter;
  adapter.id = text(f, "id");
  adapter.tenant = text(f, "tenant");
  adapter.job = text(f, "job");
  adapter.uri = text(f, "uri");
  adapter.sha256 = text(f, "sha");
  adapter.info = text(f, "info");
  adapter.desired = text(f, "desired");
  adapter.tier = text(f, "tier");
  adapter.pinned = text(f, "pinned") == "1";
  adapter.disabled = text(f, "disabled") == "1";
  adapter.aliases = split_words(text(f, "aliases"));
  adapter.created_ms = number(f, "created_ms");
  adapter.revision = number(f, "rev");
  return adapter;
}

base::Result<AdapterRecord> AdapterRepository::get(const std::string& tenant,
                                                   const std::string& id) {
  if (!is_name(tenant) || !is_word(id)) return adapter_not_found(id);
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("read", {"adapter", tenant, id}));
  if (reply.str(0) == "NOTFOUND") return adapter_not_found(id);
  if (reply.str(0) != "OK") return unexpected("read", reply);
  return adapter_from(reply.at(1).fields());
}

base::Result<std::vector<AdapterRecord>> AdapterRepository::list(const std::string& tenant,
                                                                 const Cursor& cursor, int count) {
  DEX_ASSIGN_OR_RETURN(const auto rows, store_.list("adapter", tenant, cursor, count));
  std::vector<AdapterRecord> adapters;
  for (const Reply& row : rows) adapters.push_back(adapter_from(row.at(2).fields()));
  return adapters;
}

base::Result<bool> AdapterRepository::change(const std::string& tenant, const std::string& id,
                                             const std::string& desired, const std::string& pinned,
                                             const RequestKey& request) {
  DEX_RETURN_IF_ERROR(check_tenant(tenant));
  DEX_RETURN_IF_ERROR(check_request(request));
  DEX_ASSIGN_OR_RETURN(const Reply reply,
                       store_.run("adapter", {"desire", tenant, request.id, request.digest,
                                              std::to_string(store_.times().idempotency_ms), id,
                                              desired, "DEVICE", pinned, "0"}));
  if (reply.str(0) == "OK" || reply.str(0) == "DUP") return reply.str(0) == "DUP";
  if (reply.str(0) == "CONFLICT") return idempotency_conflict(reply.str(1));
  if (reply.str(0) == "PINNED") {
    return base::failed_precondition("ADAPTER_PINNED",
                                     "The adapter '" + shown(id) + "' is pinned; unpin it first.");
  }
  return reply.str(0) == "NOTFOUND" ? adapter_not_found(id) : unexpected("adapter", reply);
}

base::Result<bool> AdapterRepository::desire(const std::string& tenant, const std::string& id,
                                             bool loaded, const RequestKey& request) {
  return change(tenant, id, loaded ? "loaded" : "none", "", request);
}

base::Result<bool> AdapterRepository::pin(const std::string& tenant, const std::string& id,
                                          bool pinned, const RequestKey& request) {
  return change(tenant, id, pinned ? "loaded" : "", pinned ? "1" : "0", request);
}

base::Result<AdapterRepository::Removed> AdapterRepository::remove(const std::string& tenant,
                                                                   const std::string& id,
                                                                   const RequestKey& request) {
  DEX_RETURN_IF_ERROR(check_tenant(tenant));
  DEX_RETURN_IF_ERROR(check_request(request));
  DEX_ASSIGN_OR_RETURN(const Reply reply,
                       store_.run("adapter", {"delete", tenant, request.id, request.digest,
                                              std::to_string(store_.times().idempotency_ms), id}));
  if (reply.str(0) == "OK") return Removed{reply.str(1), false};
  if (reply.str(0) == "DUP") return Removed{"", true};
  if (reply.str(0) == "CONFLICT") return idempotency_conflict(reply.str(1));
  if (reply.str(0) == "INUSE") return adapter_in_use(id, reply.str(1), reply.str(2));
  return reply.str(0) == "NOTFOUND" ? adapter_not_found(id) : unexpected("adapter", reply);
}

base::Result<AdapterRepository::Wanted> AdapterRepository::wanted() {
  Wanted wanted;
  std::string ms, id;
  for (bool first = true;; first = false) {
    DEX_ASSIGN_OR_RETURN(const Reply page,
                         store_.run("adapter", {"wanted", std::to_string(kWantedPage), ms, id}));
    if (page.str(0) != "OK") return unexpected("adapter", page);
    if (first) wanted.revision = page.num(1);  // what changes on later pages raises it
    for (size_t i = 2; i < page.elements.size(); ++i) {
      const Reply& row = page.at(i);
      id = row.str(0);
      ms = row.str(1);
      if (!row.at(2).elements.empty()) wanted.adapters.push_back(adapter_from(row.at(2).fields()));
    }
    if (page.elements.size() < 2 + kWantedPage) return wanted;
  }
}

}  // namespace dex::store
