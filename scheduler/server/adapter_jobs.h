#pragma once

#include <functional>
#include <optional>
#include <string>

#include "dex/v1/adapters.pb.h"
#include "scheduler/server/adapter_upload.h"
#include "scheduler/server/data_layout.h"
#include "scheduler/server/metrics.h"
#include "scheduler/server/model_catalog.h"
#include "scheduler/store/adapter_repository.h"
#include "scheduler/store/job_repository.h"
#include "services/auth/principal.h"
#include "services/base/ids.h"
#include "services/base/status.h"

namespace dex::server {

// ImportAdapter, ExportAdapter and GetExport without gRPC: jobs of a kind of their own, since only
// a worker may touch tensors. Whoever asked waits for the end; who goes away leaves the job to it,
// and a repeat of the request_id waits for the same one. Nobody sees them as jobs. Waits for a few
// round trips of the store. Thread-safe.
class AdapterJobs {
 public:
  struct Parts {  // all outlive this object
    store::JobRepository& jobs;
    store::AdapterRepository& adapters;
    const ModelCatalog& models;
    const DataLayout& layout;
    Metrics& metrics;
    base::UlidGenerator& ids;
  };
  struct Options {
    std::string pool = "cpu";
    std::function<void()> changed;  // called after a job was queued: somebody may wait for it
    // Whether the store keeps what it acknowledges (Sweeper::health); asked before a job is queued,
    // and before an archive is taken in for one.
    std::function<base::Status()> durable;
  };
  AdapterJobs(Parts parts, Options options) : parts_(parts), options_(std::move(options)) {}

  struct Begun {
    std::string id;
    bool replayed = false;  // the request_id was known: the first call's job
  };

  // Takes the archive in (adapter_upload.h) and queues its check on a worker. MODEL_NOT_FOUND;
  // INVALID_FIELD, TOO_LARGE, CHECKSUM_MISMATCH by file; QUOTA_EXCEEDED; STORAGE_FULL;
  // STORE_UNAVAILABLE, as of begin_export, also while the store would not keep it. Blocks on the
  // client.
  base::Result<Begun> begin_import(const auth::Principal& who,
                                   const v1::ImportAdapterRequest::Header& header,
                                   const UploadChunks& chunks);
  // The adapter once it is one; nothing while the worker is at it. STORE_UNAVAILABLE is no end:
  // look again. Ends: ADAPTER_MISMATCH with the key or tensor, DOES_NOT_FIT, STORAGE_FULL,
  // DEADLINE, INTERNAL.
  base::Result<std::optional<v1::Adapter>> look_import(const auth::Principal& who,
                                                       const std::string& id);

  // RESOURCE_NOT_FOUND; NOT_FOLDABLE for a whole model; INVALID_FIELD.
  base::Result<Begun> begin_export(const auth::Principal& who,
                                   const v1::ExportAdapterRequest& request);
  // As look_import; ends also with NOT_FOLDABLE, for what is not linear a token, and
  // RESOURCE_NOT_FOUND, if the adapter was deleted before a worker came to it.
  base::Result<std::optional<v1::Export>> look_export(const auth::Principal& who,
                                                      const std::string& id);
  base::Result<v1::Export> get_export(const auth::Principal& who, const std::string& id);
  // As Adapters::download. JOB_STATE_CONFLICT for one that is not ready; RESOURCE_NOT_FOUND once
  // its day is over.
  base::Status download_export(const auth::Principal& who, const std::string& id,
                               const std::function<bool(std::string)>& sink);

 private:
  base::Result<Begun> submit(const std::string& tenant, const store::RequestKey& key,
                             store::NewJob job);
  [[nodiscard]] base::Status store_is_durable() const;
  // Nothing while it runs; the record of one that has succeeded; the failure of another.
  base::Result<std::optional<store::JobRecord>> ended(const std::string& tenant,
                                                      const std::string& id,
                                                      const std::string& what);
  base::Result<store::JobRecord> export_record(const auth::Principal& who, const std::string& id);

  Parts parts_;
  Options options_;
};

}  // namespace dex::server
