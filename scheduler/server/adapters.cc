#include "scheduler/server/adapters.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>

#include "scheduler/server/artefact_tar.h"
#include "scheduler/server/job_id.h"
#include "scheduler/server/job_view.h"
#include "scheduler/server/page.h"
#include "scheduler/store/refusals.h"
#include "services/base/files.h"

namespace dex::server {

namespace {

namespace fs = std::filesystem;

iv1::RegisterRequest registration(const store::WorkerRecord& worker) {
  iv1::RegisterRequest request;
  request.ParseFromString(worker.info);
  return request;
}

iv1::HeartbeatRequest engines(const store::WorkerRecord& worker) {
  iv1::HeartbeatRequest request;
  request.ParseFromString(worker.live);
  return request;
}

// What each worker that serves the adapter's base says about it. A worker that says nothing yet is
// STATE_UNSPECIFIED.
std::vector<v1::Replica> replicas_of(const v1::Adapter& adapter,
                                     const std::vector<store::WorkerRecord>& workers) {
  std::vector<v1::Replica> replicas;
  for (const auto& worker : workers) {
    if (worker.state != "up") continue;
    const auto live = engines(worker);
    const auto bases = registration(worker).bases();
    const bool serves = std::any_of(bases.begin(), bases.end(), [&](const auto& base) {
      return base.name() == adapter.base_model();
    });
    if (!serves) continue;
    v1::Replica replica;
    replica.set_worker(worker.id);
    for (const auto& engine : live.engines()) {
      if (engine.base() != adapter.base_model()) continue;
      for (const auto& held : engine.adapters()) {
        if (held.id() != adapter.id() || held.content_sha256() != adapter.content_sha256())
          continue;
        replica.set_state(held.state());
        replica.set_error(held.error());
        replica.set_no_room(held.no_room());
        if (held.has_proof()) *replica.mutable_proof() = held.proof();
      }
    }
    replicas.push_back(std::move(replica));
  }
  return replicas;
}

void add_replicas(v1::Adapter& adapter, const std::vector<store::WorkerRecord>& workers) {
  for (auto& replica : replicas_of(adapter, workers)) {
    if (replica.state() != v1::Replica::STATE_UNSPECIFIED)
      *adapter.add_replicas() = std::move(replica);
  }
}

}  // namespace

base::Result<v1::ListAdaptersResponse> Adapters::list(const auth::Principal& who,
                                                      const v1::ListAdaptersRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdaptersRead));
  DEX_ASSIGN_OR_RETURN(const int wanted, page_size(request.page_size()));
  DEX_ASSIGN_OR_RETURN(auto cursor, parse_page_token(request.page_token()));
  DEX_ASSIGN_OR_RETURN(const auto workers, workers_.workers());
  v1::ListAdaptersResponse page;
  size_t bytes = 0;
  while (true) {
    DEX_ASSIGN_OR_RETURN(const auto records, adapters_.list(who.tenant(), cursor, kStorePage));
    for (const auto& record : records) {
      if (page.adapters_size() == wanted || bytes >= kListBytes) {
        page.set_next_page_token(page_token(cursor.before_ms, cursor.before_id));
        return page;
      }
      cursor = {record.created_ms, record.id};
      auto adapter = adapter_view(record);
      if (!request.base_model().empty() && request.base_model() != adapter.base_model()) continue;
      if (!request.job().empty() && request.job() != adapter.job()) continue;
      add_replicas(adapter, workers);
      bytes += adapter.ByteSizeLong();
      *page.add_adapters() = std::move(adapter);
    }
    if (static_cast<int>(records.size()) < kStorePage) return page;
  }
}

base::Result<v1::Adapter> Adapters::get(const auth::Principal& who,
                                        const v1::GetAdapterRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdaptersRead));
  DEX_ASSIGN_OR_RETURN(const auto record, find(who.tenant(), request.id()));
  DEX_ASSIGN_OR_RETURN(const auto workers, workers_.workers());
  auto adapter = adapter_view(record);
  add_replicas(adapter, workers);
  return adapter;
}

// An id has colons, an alias never.
base::Result<store::AdapterRecord> Adapters::find(const std::string& tenant,
                                                  const std::string& name) {
  if (name.find(':') != std::string::npos) return adapters_.get(tenant, name);
  const auto alias = aliases_.get(tenant, name);
  if (alias.ok()) return adapters_.get(tenant, alias->adapter);
  if (alias.status().code() == base::Code::kNotFound) return store::adapter_not_found(name);
  return alias.status();
}

base::Status Adapters::check_loadable(const v1::Adapter& adapter) {
  if (adapter.artifact_class() != "MODEL") return {};
  return base::Status(
      base::Code::kUnimplemented, "NOT_SUPPORTED",
      adapter.id() +
          " is a whole model and can't share an engine with adapters of its base; download it "
          "and serve it as a base model of its own: its operator's dexctl models add does both");
}

base::Result<bool> Adapters::load(const auth::Principal& who,
                                  const v1::LoadAdapterRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdaptersServe));
  DEX_ASSIGN_OR_RETURN(const auto record, adapters_.get(who.tenant(), request.id()));
  DEX_RETURN_IF_ERROR(check_loadable(adapter_view(record)));
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, ids_));
  DEX_ASSIGN_OR_RETURN(const bool replayed,
                       request.pin() ? adapters_.pin(who.tenant(), request.id(), true, key)
                                     : adapters_.desire(who.tenant(), request.id(), true, key));
  changed_();
  return replayed;
}

base::Result<Adapters::Loading> Adapters::loading(const auth::Principal& who, const std::string& id,
                                                  bool allow_no_effect) {
  DEX_ASSIGN_OR_RETURN(const auto record, adapters_.get(who.tenant(), id));
  DEX_ASSIGN_OR_RETURN(const auto workers, workers_.workers());
  Loading loading;
  loading.adapter = adapter_view(record);
  const auto replicas = replicas_of(loading.adapter, workers);
  add_replicas(loading.adapter, workers);
  if (replicas.empty()) loading.missing = "no worker serves " + loading.adapter.base_model();
  loading.done = !replicas.empty();
  for (const auto& replica : replicas) {
    if (replica.state() == v1::Replica::STATE_FAILED && replica.no_room()) {
      loading.failed = base::Status(base::Code::kResourceExhausted, "ADAPTER_SLOTS_FULL",
                                    "Worker " + replica.worker() + " has no room for it (" +
                                        replica.error() + "); unload others that nobody needs.");
    } else if (replica.state() == v1::Replica::STATE_FAILED) {
      loading.failed =
          base::failed_precondition("ADAPTER_NOT_PROVEN", "Worker " + replica.worker() +
                                                              " can't load it: " + replica.error());
    }
    // A worker of an earlier version proves nothing.
    const bool idle = replica.proof().verdict() == v1::AdapterProof::VERDICT_NO_EFFECT;
    if (replica.state() == v1::Replica::STATE_LOADED && idle && !allow_no_effect) {
      loading.failed = base::failed_precondition(
          "ADAPTER_NOT_PROVEN",
          "Worker " + replica.worker() + " has loaded all " +
              std::to_string(replica.proof().tensors_matched()) +
              " tensors, and they change no answer: the log-probabilities of " +
              std::to_string(replica.proof().probe_tokens()) +
              " probe tokens differ from the base's by 1e-6 at most. allow_no_effect takes it all "
              "the same.");
    }
    if (replica.state() == v1::Replica::STATE_LOADED) continue;
    loading.done = false;
    loading.missing += (loading.missing.empty() ? "not yet loaded on " : ", ") + replica.worker();
  }
  return loading;
}

base::Result<Answer<v1::Adapter>> Adapters::pin(const auth::Principal& who,
                                                const v1::PinAdapterRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdaptersServe));
  if (request.pinned()) {
    DEX_ASSIGN_OR_RETURN(const auto record, adapters_.get(who.tenant(), request.id()));
    DEX_RETURN_IF_ERROR(check_loadable(adapter_view(record)));
  }
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, ids_));
  DEX_ASSIGN_OR_RETURN(const bool replayed,
                       adapters_.pin(who.tenant(), request.id(), request.pinned(), key));
  changed_();
  DEX_ASSIGN_OR_RETURN(const auto record, adapters_.get(who.tenant(), request.id()));
  return Answer<v1::Adapter>{adapter_view(record), replayed};
}

base::Result<Answer<v1::Adapter>> Adapters::unload(const auth::Principal& who,
                                                   const v1::UnloadAdapterRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdaptersServe));
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, ids_));
  DEX_ASSIGN_OR_RETURN(const bool replayed,
                       adapters_.desire(who.tenant(), request.id(), false, key));
  changed_();
  DEX_ASSIGN_OR_RETURN(const auto record, adapters_.get(who.tenant(), request.id()));
  return Answer<v1::Adapter>{adapter_view(record), replayed};
}

base::Result<Answer<v1::DeleteAdapterResponse>> Adapters::remove(
    const auth::Principal& who, const v1::DeleteAdapterRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdaptersWrite));
  if (request.id().empty()) return missing("id");
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, ids_));
  const auto record = adapters_.get(who.tenant(), request.id());
  DEX_ASSIGN_OR_RETURN(const auto removed, adapters_.remove(who.tenant(), request.id(), key));
  changed_();
  if (!removed.replayed) {
    remove_files(removed.uri, record.ok() ? record->job : "", who.tenant());
  } else if (record.ok()) {  // it was there a moment ago: this call's first try, unheard of
    remove_files(record->uri, record->job, who.tenant());
  }
  v1::DeleteAdapterResponse response;
  response.set_id(request.id());
  return Answer<v1::DeleteAdapterResponse>{std::move(response), removed.replayed};
}

// The record is gone, so what can't be removed now is only told.
void Adapters::remove_files(const std::string& uri, const std::string& job,
                            const std::string& tenant) {
  const auto folder = layout_.absolute(uri);
  base::Status status = folder.ok() ? base::remove_tree(*folder) : folder.status();
  std::error_code error;
  // Of a deleted job the adapter was the last that was kept.
  const bool job_is_gone = !job.empty() && fs::exists(layout_.kept_spec(tenant, job), error);
  if (status.ok() && job_is_gone)
    status = base::remove_tree(layout_.kept_spec(tenant, job).parent_path());
  if (!status.ok()) spdlog::error("files of a deleted adapter stay: {}", status.message());
}

base::Status Adapters::download(const auth::Principal& who,
                                const v1::DownloadAdapterRequest& request,
                                const std::function<bool(std::string)>& sink) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdaptersRead));
  auto record = adapters_.get(who.tenant(), request.id());
  DEX_RETURN_IF_ERROR(record.status());
  DEX_ASSIGN_OR_RETURN(const fs::path folder, layout_.absolute(record->uri));
  return send_artefact(folder, record->sha256, "The adapter's", sink);
}

}  // namespace dex::server
