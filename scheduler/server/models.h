#pragma once

#include <utility>

#include "dex/v1/models.pb.h"
#include "scheduler/core/prices.h"
#include "scheduler/server/model_catalog.h"
#include "scheduler/store/worker_repository.h"
#include "services/base/status.h"

namespace dex::server {

// Base models, presets, limits (ModelService), without gRPC. Needs no scope: any caller may ask.
// Thread-safe.
class Models {
 public:
  // Catalog and workers outlive this object.
  Models(const ModelCatalog& catalog, store::WorkerRepository& workers, core::Prices prices = {})
      : catalog_(catalog), workers_(workers), prices_(std::move(prices)) {}

  base::Result<v1::ListModelsResponse> list();
  base::Result<v1::Model> get(const v1::GetModelRequest& request);
  static base::Result<v1::ListPresetsResponse> presets();
  // With a model: the values of its size class.
  [[nodiscard]] base::Result<v1::Preset> preset(const v1::GetPresetRequest& request) const;
  base::Result<v1::ServerCapabilities> capabilities();
  // Of a base model: MODEL_NOT_FOUND for an adapter, too.
  base::Result<v1::ModelLimits> limits(const v1::GetModelLimitsRequest& request);

 private:
  const ModelCatalog& catalog_;
  store::WorkerRepository& workers_;
  const core::Prices prices_;
};

}  // namespace dex::server
