#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "scheduler/server/data_layout.h"
#include "scheduler/store/file_repository.h"
#include "services/base/clock.h"
#include "services/base/ids.h"
#include "services/base/random.h"
#include "services/base/status.h"

namespace dex::server {

// The bytes of uploaded files, once for each content however many records name it. Several replicas
// on one data directory may work at the same time. Thread-safe; blocks on disk and store.
class BlobStore {
 public:
  BlobStore(const DataLayout& layout, store::FileRepository& files)  // both outlive this object
      : layout_(layout), files_(files) {}

  // Gives the finished temporary its place. The temporary stays until settle(), because another
  // replica may be removing equal content right now.
  base::Status place(const std::filesystem::path& temporary, const std::string& sha256);
  // After the record was stored: makes sure that the bytes are there, then removes the temporary.
  base::Status settle(const std::filesystem::path& temporary, const std::string& sha256);
  // After the last record that named the bytes was removed.
  base::Status drop(const std::string& sha256);
  // For reading, also while a drop has them aside for a moment; what is open stays readable
  // wherever they go. FILE_MISSING: they are gone.
  base::Result<std::ifstream> open(const std::string& sha256) const;

  struct Recovered {
    int64_t removed = 0;   // contents that no record names
    int64_t lost = 0;      // records whose bytes are gone: they are LOST now
    int64_t returned = 0;  // records that were LOST and whose bytes are back
  };
  // Makes bytes and records agree again after a kill -9 in the middle of an upload or a delete, or
  // after a loss on the disk. Reads every content once. Uploads and deletes may go on meanwhile.
  base::Result<Recovered> recover();

 private:
  // Where drops have put these bytes while they ask for records; as a rule nowhere.
  [[nodiscard]] std::vector<std::filesystem::path> asides(const std::string& sha256) const;
  // Of bytes that lie aside: back to their place if a record names them, else gone.
  base::Status finish_drop(const std::filesystem::path& aside, const std::string& sha256);
  base::Result<int64_t> remove_unnamed();
  base::Status check_bytes(const std::string& sha256, Recovered& sum);

  const DataLayout& layout_;
  store::FileRepository& files_;
  base::SystemClock clock_;
  base::SystemRandom random_;
  base::UlidGenerator names_{clock_, random_};  // of what lies aside
};

}  // namespace dex::server
