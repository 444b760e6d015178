#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scheduler/store/records.h"
#include "scheduler/store/store.h"

namespace dex::store {

// Names of a tenant's adapters. Thread-safe; blocks like JobRepository.
class AliasRepository {
 public:
  explicit AliasRepository(Store& store) : store_(store) {}  // the store outlives this object

  struct Change {
    std::string name, adapter;
    std::string etag;          // not empty: the revision that the alias must still have
    bool create_only = false;  // the alias must be new
    bool gates_overridden = false;
    RequestKey request = {};
  };
  struct Done {
    AliasRecord alias;  // of a repeated set: as it is now; of a repeated removal: its name alone
    bool replayed = false;  // `request` was known: nothing was done
  };
  // Points the alias to the adapter; no change if it does already. RESOURCE_NOT_FOUND for a missing
  // adapter, ABORTED ETAG_MISMATCH, ALREADY_EXISTS NAME_TAKEN, RESOURCE_EXHAUSTED QUOTA_EXCEEDED
  // above 1000 names of a tenant.
  base::Result<Done> set(const std::string& tenant, const Change& change);
  // RESOURCE_NOT_FOUND, ETAG_MISMATCH. The alias as it was.
  base::Result<Done> remove(const std::string& tenant, const std::string& name,
                            const std::string& etag, const RequestKey& request = {});

  // RESOURCE_NOT_FOUND for a missing alias and for another tenant's alike.
  base::Result<AliasRecord> get(const std::string& tenant, const std::string& name);
  // At most `count` (≤ 100) behind `cursor`, newest first. Fewer: there are no more.
  base::Result<std::vector<AliasRecord>> list(const std::string& tenant, const Cursor& cursor,
                                              int count);

 private:
  base::Result<Done> change(const std::string& name, const std::string& adapter,
                            std::vector<std::string> args);
  Store& store_;
};

// api.md §1: [a-z0-9][a-z0-9._-]{0,63}, and not "none", which a request says for the base.
bool is_alias(std::string_view name);
base::Status alias_not_found(const std::string& name);
base::Status alias_changed(const std::string& name, const std::string& etag);   // ETAG_MISMATCH
base::Status alias_taken(const std::string& name, const std::string& adapter);  // NAME_TAKEN

}  // namespace dex::store
