#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/store/records.h"
#include "scheduler/store/store.h"

namespace dex::store {

// An API key as it is stored: its hash, never the key. Times in Unix milliseconds, 0: never.
struct KeyRecord {
  std::string id, tenant, name;
  std::string sha256;  // lower-case hex
  std::string prefix;  // how the key begins
  std::string scopes;  // words with a space between; opaque here
  int64_t created_ms = 0, expire_ms = 0, used_ms = 0, revoked_ms = 0;
};

// API keys. Thread-safe; blocks like JobRepository.
class KeyRepository {
 public:
  explicit KeyRepository(Store& store) : store_(store) {}  // the store outlives this object

  struct Made {
    std::string id;
    bool replayed = false;  // by an earlier call: `key` was not stored
  };
  // `caller`: whose request it is. QUOTA_EXCEEDED when the tenant has kMostKeys that open
  // something: else the oldest that is revoked or has expired makes room. IDEMPOTENCY_CONFLICT.
  base::Result<Made> create(const KeyRecord& key, const std::string& caller,
                            const RequestKey& request);
  // A key that an operator has put into a file: there once, however often this is called. True: it
  // was made now. UNAUTHENTICATED `API_KEY_INVALID` when it was revoked since.
  base::Result<bool> ensure(const KeyRecord& key);
  // True: a repeat. `any_tenant`: the operator's. RESOURCE_NOT_FOUND for an id that is not the
  // caller's.
  base::Result<bool> revoke(const std::string& id, const std::string& caller, bool any_tenant,
                            const RequestKey& request);
  // RESOURCE_NOT_FOUND.
  base::Result<KeyRecord> get(const std::string& id);
  // Newest first, at most `count` (≤ 100) after the cursor; fewer: there are no more.
  base::Result<std::vector<KeyRecord>> list(const std::string& tenant, Cursor cursor, int count);
  // Id and moment of the last use of each; what is older than the stored one changes nothing, an
  // unknown id neither.
  base::Status used(const std::vector<std::pair<std::string, int64_t>>& uses);
  // Every tenant's that are not revoked: id, tenant, sha256, scopes, expire_ms only. In pages, each
  // a short script; what changes meanwhile raises WorkerRepository::routes_revision().
  base::Result<std::vector<KeyRecord>> all();

  static constexpr int kMostKeys = 1000;  // a tenant's

 private:
  Store& store_;
};

}  // namespace dex::store
