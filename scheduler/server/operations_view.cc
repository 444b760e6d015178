#include "scheduler/server/operations_view.h"

#include "dex/internal/v1/worker.pb.h"
#include "proto/worker_features.h"
#include "scheduler/core/public_state.h"

namespace dex::server {

namespace {

namespace iv1 = dex::internal::v1;

// Of "ft:<base>:<tenant>:<suffix>:<ulid>".
std::string tenant_of_adapter(const std::string& id) {
  const size_t first = id.find(':'), second = id.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos) return "";
  return id.substr(second + 1, id.find(':', second + 1) - second - 1);
}

void add_served_adapters(const std::string& tenant, const std::string& live, v1::Worker& worker) {
  iv1::HeartbeatRequest told;
  if (!told.ParseFromString(live)) return;
  uint32_t loaded = 0;
  for (const auto& engine : told.engines()) {
    for (const auto& adapter : engine.adapters()) {
      if (adapter.state() != v1::Replica::STATE_LOADED) continue;
      ++loaded;
      if (tenant_of_adapter(adapter.id()) == tenant) worker.add_adapters(adapter.id());
    }
  }
  worker.set_adapters_loaded(loaded);
}

}  // namespace

v1::Quota quota_view(const std::string& tenant, const store::OperatorRepository::Quota& quota) {
  v1::Quota view;
  view.set_tenant(tenant);
  view.set_weight(quota.weight);
  view.set_max_queued(static_cast<uint32_t>(quota.max_queued));
  view.set_max_running(static_cast<uint32_t>(quota.max_running));
  view.set_device_seconds_per_day(quota.seconds_a_day);
  view.set_queued(static_cast<uint32_t>(quota.queued));
  view.set_running(static_cast<uint32_t>(quota.running));
  view.set_device_seconds_today(quota.seconds_today);
  view.set_etag(quota.revision);
  return view;
}

v1::Worker worker_view(const std::string& tenant,
                       const store::OperatorRepository::SeenWorker& worker) {
  const store::WorkerRecord& record = worker.record;
  v1::Worker view;
  view.set_id(record.id);
  view.set_host(record.host);
  view.set_version(record.version);
  for (const std::string& pool : record.pools) view.add_pools(pool);
  view.set_state(record.state == "up" ? v1::Worker::STATE_UP : v1::Worker::STATE_DRAINING);
  view.set_slots(static_cast<uint32_t>(record.slots));
  view.set_running(static_cast<uint32_t>(worker.attempts.size()));
  for (const auto& attempt : worker.attempts) {
    if (attempt.tenant == tenant) view.add_jobs(attempt.job);
  }
  add_served_adapters(tenant, record.live, view);
  for (const std::string& model : record.models) {
    if (proto::is_plain_model(model)) view.add_models(model);
  }
  iv1::RegisterRequest registered;
  if (registered.ParseFromString(record.info)) {
    for (const auto& device : registered.devices()) {
      auto& shown = *view.add_devices();
      shown.set_kind(device.kind());
      shown.set_memory_bytes(device.memory_bytes());
    }
  }
  view.set_heartbeat_age_seconds(worker.heartbeat_age_seconds);
  return view;
}

v1::Queue::Pool pool_view(const std::string& tenant, const std::string& name,
                          const store::OperatorRepository::PoolQueue& queue) {
  v1::Queue::Pool view;
  view.set_name(name);
  view.set_waiting(static_cast<uint32_t>(queue.ready));
  view.set_running(static_cast<uint32_t>(queue.running));
  view.set_oldest_wait_seconds(queue.oldest_seconds);
  view.set_workers(static_cast<uint32_t>(queue.workers));
  for (const auto& waiting : queue.order) {
    auto& entry = *view.add_order();
    entry.set_position(static_cast<uint32_t>(view.order_size()));
    if (waiting.tenant == tenant) entry.set_job(waiting.id);
    entry.set_kind(waiting.kind);
    entry.set_priority(static_cast<uint32_t>(waiting.priority));
    entry.set_waiting_seconds(waiting.waiting_seconds);
    core::StoredState stored;
    stored.state = "READY";
    entry.set_reason(core::waiting_reason(stored, waiting.in_ring, waiting.lacks_model));
  }
  return view;
}

}  // namespace dex::server
