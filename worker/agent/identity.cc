#include "worker/agent/identity.h"

#include <unistd.h>

#include "proto/worker_features.h"
#include "services/base/version.h"

namespace dex::agent {

iv1::Device cpu_device(const std::string& worker_id) {
  iv1::Device device;
  device.set_uuid("cpu-" + worker_id);
  device.set_kind("cpu");
  device.set_memory_bytes(static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE));
  return device;
}

iv1::RegisterRequest identity(const AgentOptions& options,
                              const std::vector<BaseModelEntry>& models,
                              const std::vector<BaseModelEntry>& served,
                              const std::string& address) {
  iv1::RegisterRequest request;
  request.set_worker_id(options.worker_id);
  request.set_host(options.host);
  request.set_version(std::string(base::version()) + "+" + std::string(base::commit()));
  for (const auto& pool : options.pools) request.add_pools(pool);
  request.set_slots(options.pools.empty() ? 0 : options.slots);
  auto& device = *request.add_devices();
  device = cpu_device(options.worker_id);
  // What a job may have: each rank holds the base and its own activations.
  device.set_memory_bytes(device.memory_bytes() / options.ranks);
  for (const auto& model : models) request.add_models(model.name);
  for (const auto& feature : proto::worker_features()) request.add_features(feature);
  for (const auto& model : served) {
    auto& entry = *request.add_bases();
    entry.set_name(model.name);
    entry.set_weights_sha256(model.weights_sha256);
  }
  request.set_inference_address(options.advertise.empty() ? address : options.advertise);
  return request;
}

}  // namespace dex::agent
