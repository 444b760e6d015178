#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/store/key_repository.h"
#include "scheduler/store/records.h"
#include "scheduler/store/store.h"

namespace dex::store {

// Workers that are up or draining. Thread-safe; blocks like JobRepository.
class WorkerRepository {
 public:
  explicit WorkerRepository(Store& store) : store_(store) {}  // the store outlives this object

  struct Sign {
    bool unknown = false;  // register again
    bool draining = false;
    int64_t desired_revision = 0;  // of AdapterRepository::wanted()
    int64_t routes_revision = 0;   // of routes()
  };
  base::Result<Sign> enlist(const WorkerRecord& worker);  // `state` and `live` are ignored
  // The worker lives, its engines hold `live`, and its clock is that far ahead of the caller's.
  base::Result<Sign> alive(const std::string& id, const std::string& live,
                           std::optional<int64_t> clock_ahead_ms = std::nullopt);
  base::Result<Sign> drain(const std::string& id);
  base::Result<Sign> gone(const std::string& id);  // its record goes a day later

  // All that are up or draining.
  base::Result<std::vector<WorkerRecord>> workers();

  struct Routes {
    int64_t revision = 0;
    std::vector<WorkerRecord> workers;
    std::vector<AdapterRecord> adapters;  // every tenant's: id, tenant, uri, sha256, disabled only
    struct Alias {
      std::string name;
      AdapterRecord adapter;  // where it points, as far as those of `adapters`
    };
    std::vector<Alias> aliases;   // every tenant's
    std::vector<KeyRecord> keys;  // as KeyRepository::all() has them
  };
  // Read in pages, each a short script: what changes meanwhile raises the revision, which is read
  // first, so a caller that compares it reads again.
  base::Result<Routes> routes();
  // Cheap: tells whether routes() would answer something new.
  base::Result<int64_t> routes_revision();

 private:
  base::Result<Sign> sign(std::vector<std::string> args);
  // `take(row, adapter)` of each row of routes.lua's op `adapters` or `aliases`, with the adapter
  // but for its id.
  using TakeRow = std::function<void(const Reply& row, AdapterRecord adapter)>;
  base::Status each_routable(const std::string& op, const TakeRow& take);
  Store& store_;
};

}  // namespace dex::store
