#pragma once

#include <functional>
#include <string>

#include "dex/v1/adapters.pb.h"
#include "scheduler/server/data_layout.h"
#include "scheduler/server/request_key.h"
#include "scheduler/store/adapter_repository.h"
#include "scheduler/store/alias_repository.h"
#include "scheduler/store/worker_repository.h"
#include "services/auth/principal.h"
#include "services/base/ids.h"
#include "services/base/status.h"

namespace dex::server {

// Published adapters (AdapterService), without gRPC. Waits for a few round trips of the store.
// Thread-safe.
class Adapters {
 public:
  // All outlive this object. `changed` is called when workers should hear of a change.
  Adapters(store::AdapterRepository& adapters, store::AliasRepository& aliases,
           store::WorkerRepository& workers, const DataLayout& layout, base::UlidGenerator& ids,
           std::function<void()> changed)
      : adapters_(adapters),
        aliases_(aliases),
        workers_(workers),
        layout_(layout),
        ids_(ids),
        changed_(std::move(changed)) {}

  base::Result<v1::ListAdaptersResponse> list(const auth::Principal& who,
                                              const v1::ListAdaptersRequest& request);
  base::Result<v1::Adapter> get(const auth::Principal& who, const v1::GetAdapterRequest& request);

  // The adapter of that id or alias. RESOURCE_NOT_FOUND, also for another tenant's.
  base::Result<store::AdapterRecord> find(const std::string& tenant, const std::string& name);
  // UNIMPLEMENTED NOT_SUPPORTED for a whole model, which can't share an engine.
  static base::Status check_loadable(const v1::Adapter& adapter);

  // Asks every worker to hold the adapter, and answers whether the request_id was known: then it
  // asks nobody again. Afterwards loading() tells how far they are.
  base::Result<bool> load(const auth::Principal& who, const v1::LoadAdapterRequest& request);
  struct Loading {
    v1::Adapter adapter;
    bool done = false;  // every worker that serves the base has it
    base::Status
        failed;  // a worker can't: ADAPTER_NOT_PROVEN or ADAPTER_SLOTS_FULL, with its words
    std::string missing;  // workers that are not there yet, in words
  };
  base::Result<Loading> loading(const auth::Principal& who, const std::string& id,
                                bool allow_no_effect = false);
  // Asks as load() does, without telling how far they are; or allows an unload again.
  base::Result<Answer<v1::Adapter>> pin(const auth::Principal& who,
                                        const v1::PinAdapterRequest& request);
  base::Result<Answer<v1::Adapter>> unload(const auth::Principal& who,
                                           const v1::UnloadAdapterRequest& request);

  // Record and files, and what was kept of a job that was deleted before it
  // (DataLayout::kept_spec). ADAPTER_IN_USE while workers are asked to hold it. Waits for the disk.
  base::Result<Answer<v1::DeleteAdapterResponse>> remove(const auth::Principal& who,
                                                         const v1::DeleteAdapterRequest& request);

  // The artefact as a tar, checksums.json first, in pieces of at most 256 KiB; `sink` answers false
  // when nobody listens any more. ARTIFACT_CORRUPT when a file is missing or not as recorded: then
  // the archive has no end and no client takes it for whole.
  base::Status download(const auth::Principal& who, const v1::DownloadAdapterRequest& request,
                        const std::function<bool(std::string)>& sink);

 private:
  // Of a deleted adapter that `job` has made; empty: nobody knows which.
  void remove_files(const std::string& uri, const std::string& job, const std::string& tenant);

  store::AdapterRepository& adapters_;
  store::AliasRepository& aliases_;
  store::WorkerRepository& workers_;
  const DataLayout& layout_;
  base::UlidGenerator& ids_;
  std::function<void()> changed_;
};

}  // namespace dex::server
