#include "scheduler/server/blob_store.h"

#include <unistd.h>

#include <cerrno>

#include "services/base/errno_status.h"
#include "services/base/files.h"

namespace dex::server {

namespace fs = std::filesystem;

base::Status BlobStore::place(const fs::path& temporary, const std::string& sha256) {
  DEX_ASSIGN_OR_RETURN(const fs::path path, layout_.absolute(DataLayout::blob(sha256)));
  DEX_RETURN_IF_ERROR(base::make_directories(path.parent_path()));
  // A link, not a rename: equal content that is there already simply stays.
  if (::link(temporary.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    return base::errno_status(errno, "storing " + path.string());
  }
  return base::sync_directory(path.parent_path());
}

base::Status BlobStore::settle(const fs::path& temporary, const std::string& sha256) {
  // drop() moves the bytes away *before* it asks for records, and our record is stored *before*
  // this look: so either it sees the record and puts them back, or we see that they are gone.
  DEX_ASSIGN_OR_RETURN(const fs::path path, layout_.absolute(DataLayout::blob(sha256)));
  if (!fs::exists(path)) DEX_RETURN_IF_ERROR(place(temporary, sha256));
  std::error_code ignored;
  fs::remove(temporary, ignored);
  return {};
}

base::Status BlobStore::drop(const std::string& sha256) {
  DEX_ASSIGN_OR_RETURN(const fs::path path, layout_.absolute(DataLayout::blob(sha256)));
  const fs::path aside = layout_.upload(sha256 + ".dropped");
  if (::rename(path.c_str(), aside.c_str()) != 0) {
    return errno == ENOENT ? base::Status()
                           : base::errno_status(errno, "removing " + path.string());
  }
  const auto named = files_.named(sha256);
  if (!named.ok() || *named) {  // not sure is as good as yes: bytes too many harm nobody
    const base::Status back = place(aside, sha256);
    if (!back.ok()) return back;
  }
  std::error_code ignored;
  fs::remove(aside, ignored);
  return named.ok() ? base::Status() : named.status();
}

}  // namespace dex::server
