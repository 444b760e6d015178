#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dex/internal/v1/routes.pb.h"
#include "services/auth/key_ring.h"
#include "services/base/status.h"

namespace dex::gateway {

// What shall answer a generation: a base model, or one adapter of it in one exact content.
struct Target {
  std::string base;
  std::string adapter;         // empty: the base itself
  std::string content_sha256;  // of the adapter
  std::string path;            // its directory below the data directory, for load on first use
  std::string alias;           // by which it was asked for; empty: by its id
};

// One route snapshot of the scheduler, indexed. Immutable after construction, no I/O.
class RouteTable {
 public:
  struct Worker {
    std::string id;
    std::string address;  // of its InferenceService
    bool holds_adapter = false;
    uint32_t reported_load = 0;  // running and waiting requests at its last heartbeat, about
  };

  RouteTable() = default;  // knows nothing
  explicit RouteTable(internal::v1::RouteSnapshot snapshot);
  RouteTable(const RouteTable&) = delete;
  RouteTable& operator=(const RouteTable&) = delete;

  // api.md §6: `adapter` wins over `model` and must belong to it; "none" means the base. A name is
  // a base's, else an adapter's id, else an alias of the tenant's. Unknown names, and adapters and
  // aliases of other tenants, are NOT_FOUND `MODEL_NOT_FOUND`: the base never answers
  // for a missing adapter. FAILED_PRECONDITION `ADAPTER_MISMATCH`, INVALID_ARGUMENT
  // `MISSING_FIELD`.
  [[nodiscard]] base::Result<Target> resolve(std::string_view tenant, std::string_view model,
                                             std::string_view adapter) const;

  // The workers that serve the target's base, in the snapshot's order. May be empty.
  [[nodiscard]] std::vector<Worker> workers(const Target& target) const;

  // Every worker that is routed to, one an address.
  [[nodiscard]] std::vector<Worker> every_worker() const;
  [[nodiscard]] bool has_address(std::string_view address) const;
  [[nodiscard]] int64_t revision() const { return snapshot_.revision(); }
  // The API keys that came with these routes.
  [[nodiscard]] std::vector<auth::KnownKey> keys() const;

 private:
  [[nodiscard]] base::Result<Target> find(std::string_view field, std::string_view tenant,
                                          std::string_view name) const;

  internal::v1::RouteSnapshot snapshot_;
  std::unordered_map<std::string_view, const internal::v1::RouteSnapshot::AdapterRoute*> adapters_;
  // By tenant and name, with a '/' between, which neither has.
  std::unordered_map<std::string, const internal::v1::RouteSnapshot::AliasRoute*> aliases_;
};

}  // namespace dex::gateway
