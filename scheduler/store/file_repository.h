#pragma once

#include <string>
#include <vector>

#include "scheduler/store/records.h"
#include "scheduler/store/store.h"

namespace dex::store {

// Records of uploaded files; their bytes lie in the artefact store under their SHA-256 and may be
// shared by several records. Thread-safe; blocks like JobRepository.
class FileRepository {
 public:
  explicit FileRepository(Store& store) : store_(store) {}  // the store outlives this object

  struct Put {
    std::string id;
    bool replayed = false;
  };
  // Stores `file` (tenant and created_ms are set here). A request_id that is known answers what it
  // made; ALREADY_EXISTS IDEMPOTENCY_CONFLICT when that request was another one.
  // RESOURCE_EXHAUSTED QUOTA_EXCEEDED at max_files.
  base::Result<Put> put(const std::string& tenant, const RequestKey& request,
                        const FileRecord& file, int max_files);
  // RESOURCE_NOT_FOUND for a missing file and for another tenant's alike.
  base::Result<FileRecord> get(const std::string& tenant, const std::string& id);
  base::Result<std::vector<FileRecord>> list(const std::string& tenant, const Cursor& cursor,
                                             int count);

  struct Deleted {
    std::string sha256;
    bool last = false;      // no other record names these bytes now
    bool replayed = false;  // `request` was known: the file went then, the rest is not said again
  };
  // FAILED_PRECONDITION FILE_IN_USE names a live job that needs the file.
  base::Result<Deleted> remove(const std::string& tenant, const std::string& id,
                               const RequestKey& request = {});
  // Whether any record names these bytes.
  base::Result<bool> named(const std::string& sha256);
  base::Result<bool> exists(const std::string& id);
  // Every content that some record names, of all tenants. What comes or goes meanwhile may be
  // missing, or be named twice.
  base::Result<std::vector<std::string>> contents();
  // Tells all records of this content whether its bytes are there: they become LOST, or what they
  // were before. Answers how many changed.
  base::Result<int64_t> set_bytes(const std::string& sha256, bool there);

 private:
  Store& store_;
};

}  // namespace dex::store
