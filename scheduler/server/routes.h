#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "dex/internal/v1/routes.pb.h"
#include "scheduler/server/model_catalog.h"
#include "scheduler/server/waiters.h"
#include "scheduler/store/worker_repository.h"
#include "services/base/status.h"

namespace dex::server {

namespace iv1 = dex::internal::v1;

// What gateways need to route without asking: which worker serves which base with which adapters.
iv1::RouteSnapshot route_snapshot(const store::WorkerRepository::Routes& routes,
                                  const ModelCatalog& models);

// What routes say of an engine's load: 0 below 8 requests, else the power of two that it has
// reached. Each change of what they say sends all routes to all gateways, and a busy engine's load
// is another one at every beat; a gateway knows its own calls by itself.
uint32_t told_load(uint32_t requests);

// The same in messages of about `most_bytes` at most, each below the limit of a gRPC message; all
// but the last are marked `more`. A single route or adapter is never split.
std::vector<iv1::RouteSnapshot> route_pages(iv1::RouteSnapshot whole, size_t most_bytes);

// Tells gateways of every change. Thread-safe.
class Routes {
 public:
  class Gateway {
   public:
    virtual ~Gateway() = default;
    virtual bool push(iv1::RouteSnapshot page) = 0;  // never waits; false: gone
    [[nodiscard]] virtual bool gone() const = 0;
  };

  Routes(store::WorkerRepository& workers, const ModelCatalog& models, Waiters& waiters)
      : workers_(workers), models_(models), waiters_(waiters) {}  // all outlive this object

  // Sends the whole now and after each change, until the gateway is gone. Fails when the store
  // can't be read: a gateway keeps what it has and comes again.
  base::Status watch(std::shared_ptr<Gateway> gateway);

  // Whether every gateway that watches here has been sent routes of that revision or a later one.
  // For the waiters' thread, which is the one that sends.
  [[nodiscard]] bool told(int64_t revision) const;

 private:
  bool look();

  store::WorkerRepository& workers_;
  const ModelCatalog& models_;
  Waiters& waiters_;
  mutable std::mutex mutex_;
  struct Watch {
    std::shared_ptr<Gateway> gateway;
    int64_t revision;
  };
  std::vector<Watch> watches_;  // guarded by mutex_
  bool looking_ = false;        // guarded by mutex_
};

}  // namespace dex::server
