#pragma once

#include <string>
#include <vector>

#include "scheduler/store/records.h"
#include "scheduler/store/store.h"

namespace dex::store {

// Published adapters (made by a job's `finish success`, never here) and which of them workers
// should hold. Thread-safe; blocks like JobRepository.
class AdapterRepository {
 public:
  explicit AdapterRepository(Store& store) : store_(store) {}  // the store outlives this object

  // RESOURCE_NOT_FOUND for a missing adapter and for another tenant's alike.
  base::Result<AdapterRecord> get(const std::string& tenant, const std::string& id);
  base::Result<std::vector<AdapterRecord>> list(const std::string& tenant, const Cursor& cursor,
                                                int count);

  // Asks the workers to hold the adapter, or to let it go. Answers whether `request` was known:
  // then nothing was done, whatever has been asked for since. A pinned one is not let go:
  // FAILED_PRECONDITION ADAPTER_PINNED.
  base::Result<bool> desire(const std::string& tenant, const std::string& id, bool loaded,
                            const RequestKey& request = {});

  // Pinned, the workers are to hold it, too; what is unpinned is held as before. Answers as
  // desire().
  base::Result<bool> pin(const std::string& tenant, const std::string& id, bool pinned,
                         const RequestKey& request = {});

  // Forgets the adapter. FAILED_PRECONDITION ADAPTER_IN_USE while workers are asked to hold it, an
  // alias points to it, or a live job needs it (NewJob::adapters); then the metadata `alias` or
  // `job` names one.
  struct Removed {
    std::string uri;        // where its files lie; of a replay: empty
    bool replayed = false;  // `request` was known
  };
  base::Result<Removed> remove(const std::string& tenant, const std::string& id,
                               const RequestKey& request = {});

  struct Wanted {
    int64_t revision = 0;  // rises with each change of the list
    std::vector<AdapterRecord> adapters;
  };
  // Every tenant's adapters that should be held, read in pages.
  base::Result<Wanted> wanted();

 private:
  // `desired` and `pinned` in the words of adapter.lua.
  base::Result<bool> change(const std::string& tenant, const std::string& id,
                            const std::string& desired, const std::string& pinned,
                            const RequestKey& request);
  Store& store_;
};

// A record as it lies in its hash.
AdapterRecord adapter_from(const std::map<std::string, std::string>& fields);

}  // namespace dex::store
