#include "scheduler/server/models.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "dex/internal/v1/worker.pb.h"
#include "scheduler/core/methods.h"
#include "scheduler/core/model_limits.h"
#include "scheduler/core/presets.h"
#include "services/base/version.h"
#include "services/data/limits.h"

namespace dex::server {

namespace iv1 = dex::internal::v1;

namespace {

v1::Model::ServedDtype served_dtype(const std::string& word) {
  if (word == "f32") return v1::Model::SERVED_DTYPE_FP32;
  if (word == "bf16") return v1::Model::SERVED_DTYPE_BF16;
  if (word == "int4") return v1::Model::SERVED_DTYPE_INT4;
  return word == "int8" ? v1::Model::SERVED_DTYPE_INT8 : v1::Model::SERVED_DTYPE_UNSPECIFIED;
}

// Says where the model is in memory, and how.
void add_workers(v1::Model& model, const std::vector<store::WorkerRecord>& workers) {
  int count = 0;
  std::set<std::string> dtypes;
  for (const auto& worker : workers) {
    iv1::HeartbeatRequest live;
    if (worker.state != "up" || !live.ParseFromString(worker.live)) continue;
    for (const auto& engine : live.engines()) {
      if (engine.base() != model.name() || engine.state() != iv1::EngineStatus::STATE_SERVING)
        continue;
      ++count;
      dtypes.insert(engine.dtype());
    }
  }
  model.set_served(count > 0);
  model.set_workers(count);
  if (dtypes.size() == 1) model.set_served_dtype(served_dtype(*dtypes.begin()));
}

}  // namespace

base::Result<v1::ListModelsResponse> Models::list() {
  DEX_ASSIGN_OR_RETURN(const auto workers, workers_.workers());
  v1::ListModelsResponse response;
  for (v1::Model model : catalog_.models()) {
    add_workers(model, workers);
    *response.add_models() = std::move(model);
  }
  return response;
}

base::Result<v1::Model> Models::get(const v1::GetModelRequest& request) {
  DEX_ASSIGN_OR_RETURN(auto model, catalog_.find(request.name()));
  DEX_ASSIGN_OR_RETURN(const auto workers, workers_.workers());
  add_workers(model, workers);
  return model;
}

base::Result<v1::ListPresetsResponse> Models::presets() {
  v1::ListPresetsResponse response;
  for (const auto name : core::preset_names()) {
    DEX_ASSIGN_OR_RETURN(*response.add_presets(), core::preset(name, core::SizeClass::kSmall));
  }
  return response;
}

base::Result<v1::Preset> Models::preset(const v1::GetPresetRequest& request) const {
  auto size = core::SizeClass::kSmall;
  if (!request.model().empty()) {
    DEX_ASSIGN_OR_RETURN(const auto model, catalog_.find(request.model()));
    size = core::size_class(model.parameters());
  }
  return core::preset(request.name(), size);
}

base::Result<v1::ServerCapabilities> Models::capabilities() {
  DEX_ASSIGN_OR_RETURN(const auto workers, workers_.workers());
  v1::ServerCapabilities capabilities;
  capabilities.set_version(std::string(base::version()));
  capabilities.set_commit(std::string(base::commit()));
  for (const auto method : core::method_names()) capabilities.add_methods(std::string(method));
  for (const auto name : core::preset_names()) capabilities.add_presets(std::string(name));
  const data::Limits files;
  auto& limits = *capabilities.mutable_limits();
  limits["message_bytes"] = 4 << 20;
  limits["spec_bytes"] = 32 << 10;
  limits["upload_chunk_bytes"] = 1 << 20;
  limits["file_bytes"] = files.file_bytes;
  limits["line_bytes"] = files.line_bytes;
  limits["file_rows"] = files.rows;
  limits["metadata_pairs"] = 16;
  limits["tenant_queued_jobs"] = 20;
  limits["tenant_running_jobs"] = 2;
  limits["tenant_files"] = 100;
  std::set<std::string> pools;
  for (const auto& worker : workers) pools.insert(worker.pools.begin(), worker.pools.end());
  for (const auto& pool : pools) capabilities.add_pools(pool);
  capabilities.mutable_device_hour_prices()->insert(prices_.by_pool.begin(), prices_.by_pool.end());
  capabilities.set_currency(prices_.currency);
  return capabilities;
}

base::Result<v1::ModelLimits> Models::limits(const v1::GetModelLimitsRequest& request) {
  DEX_ASSIGN_OR_RETURN(const auto model, catalog_.find(request.model()));
  DEX_ASSIGN_OR_RETURN(auto limits, core::model_limits(model, request.method()));
  DEX_ASSIGN_OR_RETURN(const auto workers, workers_.workers());
  std::map<std::string, int64_t> pools;  // name → memory of its largest worker
  for (const auto& worker : workers) {
    const auto& has = worker.models;
    if (worker.state != "up" ||
        (!has.empty() && std::find(has.begin(), has.end(), model.name()) == has.end()))
      continue;
    iv1::RegisterRequest registered;
    registered.ParseFromString(worker.info);
    for (const auto& pool : worker.pools) {
      int64_t& memory = pools[pool];
      for (const auto& device : registered.devices())
        memory = std::max(memory, device.memory_bytes());
    }
  }
  for (const auto& [pool, memory] : pools) core::add_pool(pool, memory, limits);
  return limits;
}

}  // namespace dex::server
