#pragma once

#include <cstdint>
#include <string>

#include "scheduler/store/store.h"
#include "services/base/status.h"

namespace dex::store {

// What an operator may want to know of the Redis behind a store, as it says itself.
struct StoreFacts {
  std::string version;   // "7.0.15"
  std::string mode;      // standalone, sentinel, cluster
  std::string role;      // master, slave
  int64_t replicas = 0;  // connected to it
  bool append_only = false;
  std::string last_append;                 // "ok", or how the last write to the file ended
  std::string fsync;                       // always, everysec, no
  std::string fsync_in_rewrite;            // "no": also while the file is rewritten
  std::string eviction;                    // noeviction, allkeys-lru, …
  int64_t used_bytes = 0, most_bytes = 0;  // most: 0 = no limit
  std::string directory;                   // of its file, on its own machine
  int64_t now_ms = 0;                      // its clock
};

// Four round trips. UNAVAILABLE, or FAILED_PRECONDITION as Store::preflight().
base::Result<StoreFacts> store_facts(Store& store);

}  // namespace dex::store
