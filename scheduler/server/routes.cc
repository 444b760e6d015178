#include "scheduler/server/routes.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "dex/internal/v1/worker.pb.h"
#include "scheduler/server/job_view.h"

namespace dex::server {

namespace {

void add_routes(const store::WorkerRecord& worker, iv1::RouteSnapshot& snapshot) {
  if (worker.state != "up") return;
  iv1::RegisterRequest registered;
  iv1::HeartbeatRequest live;
  if (!registered.ParseFromString(worker.info) || !live.ParseFromString(worker.live)) return;
  if (registered.inference_address().empty()) return;
  for (const auto& engine : live.engines()) {
    if (engine.state() != iv1::EngineStatus::STATE_SERVING) continue;
    auto& route = *snapshot.add_routes();
    route.set_worker(worker.id);
    route.set_inference_address(registered.inference_address());
    route.set_base(engine.base());
    route.set_running(engine.running());
    route.set_waiting(engine.waiting());
    for (const auto& adapter : engine.adapters()) {
      if (adapter.state() == v1::Replica::STATE_LOADED) route.add_adapters(adapter.id());
    }
  }
}

iv1::RouteSnapshot::AdapterRoute adapter_route(const store::AdapterRecord& record) {
  iv1::RouteSnapshot::AdapterRoute adapter;
  adapter.set_id(record.id);
  adapter.set_base(base_of_adapter(record.id));
  adapter.set_content_sha256(record.sha256);
  adapter.set_tenant(record.tenant);
  adapter.set_path(record.uri);
  return adapter;
}

constexpr size_t kPageBytes = 1 << 20;  // a quarter of what a message may have

using RoutePages = std::vector<iv1::RouteSnapshot>;

// The page that still has room for `bytes` more.
class RoutePager {
 public:
  RoutePager(int64_t revision, size_t most_bytes) : revision_(revision), most_bytes_(most_bytes) {
    next();
  }
  iv1::RouteSnapshot& room_for(size_t bytes) {
    if (bytes_ > 0 && bytes_ + bytes > most_bytes_) {
      pages_.back().set_more(true);
      next();
    }
    bytes_ += bytes;
    return pages_.back();
  }
  RoutePages take() { return std::move(pages_); }

 private:
  void next() {
    pages_.emplace_back().set_revision(revision_);
    bytes_ = 0;
  }
  const int64_t revision_;
  const size_t most_bytes_;
  size_t bytes_ = 0;
  RoutePages pages_;
};

bool push_all(Routes::Gateway& gateway, const RoutePages& pages) {
  return std::all_of(pages.begin(), pages.end(),
                     [&gateway](const auto& page) { return gateway.push(page); });
}

}  // namespace

uint32_t told_load(uint32_t requests) {
  constexpr uint32_t kWorthTelling = 8;
  return requests < kWorthTelling ? 0 : std::bit_floor(requests);
}

RoutePages route_pages(iv1::RouteSnapshot whole, size_t most_bytes) {
  RoutePager pager(whole.revision(), most_bytes);
  for (std::string& base : *whole.mutable_bases())
    pager.room_for(base.size()).add_bases(std::move(base));
  for (auto& route : *whole.mutable_routes())
    *pager.room_for(route.ByteSizeLong()).add_routes() = std::move(route);
  for (auto& adapter : *whole.mutable_adapters())
    *pager.room_for(adapter.ByteSizeLong()).add_adapters() = std::move(adapter);
  for (auto& alias : *whole.mutable_aliases())
    *pager.room_for(alias.ByteSizeLong()).add_aliases() = std::move(alias);
  for (auto& key : *whole.mutable_keys())
    *pager.room_for(key.ByteSizeLong()).add_keys() = std::move(key);
  return pager.take();
}

iv1::RouteSnapshot route_snapshot(const store::WorkerRepository::Routes& routes,
                                  const ModelCatalog& models) {
  iv1::RouteSnapshot snapshot;
  snapshot.set_revision(routes.revision);
  for (const auto& worker : routes.workers) add_routes(worker, snapshot);
  for (const auto& record : routes.adapters) {
    if (!record.disabled) *snapshot.add_adapters() = adapter_route(record);
  }
  for (const auto& [name, adapter] : routes.aliases) {
    if (adapter.disabled) continue;
    auto& alias = *snapshot.add_aliases();
    alias.set_name(name);
    *alias.mutable_adapter() = adapter_route(adapter);
  }
  for (const auto& record : routes.keys) {
    auto& key = *snapshot.add_keys();
    key.set_id(record.id);
    key.set_sha256(record.sha256);
    key.set_tenant(record.tenant);
    key.set_scopes(record.scopes);
    key.set_expire_ms(record.expire_ms);
  }
  for (const auto& model : models.models()) snapshot.add_bases(model.name());
  return snapshot;
}

base::Status Routes::watch(std::shared_ptr<Gateway> gateway) {
  auto routes = workers_.routes();
  DEX_RETURN_IF_ERROR(routes.status());
  if (!push_all(*gateway, route_pages(route_snapshot(*routes, models_), kPageBytes))) return {};
  const std::lock_guard lock(mutex_);
  watches_.push_back({std::move(gateway), routes->revision});
  if (!looking_) {
    looking_ = true;
    waiters_.add([this] { return look(); });
  }
  return {};
}

bool Routes::told(int64_t revision) const {
  const std::lock_guard lock(mutex_);
  return std::all_of(watches_.begin(), watches_.end(), [revision](const Watch& watch) {
    return watch.revision >= revision || watch.gateway->gone();
  });
}

bool Routes::look() {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(watches_, [](const Watch& watch) { return watch.gateway->gone(); });
    if (watches_.empty()) {
      looking_ = false;
      return true;
    }
  }
  const auto revision = workers_.routes_revision();
  if (!revision.ok()) return false;
  std::vector<Watch> watches;
  {
    const std::lock_guard lock(mutex_);
    const bool news = std::any_of(watches_.begin(), watches_.end(),
                                  [&](const Watch& watch) { return watch.revision != *revision; });
    if (!news) return false;
    watches.swap(watches_);
  }
  if (const auto routes = workers_.routes(); routes.ok()) {
    const auto pages = route_pages(route_snapshot(*routes, models_), kPageBytes);
    std::erase_if(watches, [&](Watch& watch) {
      watch.revision = routes->revision;
      return !push_all(*watch.gateway, pages);
    });
  }
  const std::lock_guard lock(mutex_);
  watches_.insert(watches_.end(), std::make_move_iterator(watches.begin()),
                  std::make_move_iterator(watches.end()));
  return false;
}

}  // namespace dex::server
