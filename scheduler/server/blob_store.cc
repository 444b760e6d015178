#include "scheduler/server/blob_store.h"

#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "services/base/errno_status.h"
#include "services/base/files.h"

namespace dex::server {

namespace fs = std::filesystem;

namespace {

constexpr const char* kAside = ".dropped";

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Names of the regular files below a folder; what vanishes meanwhile is left out.
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    if (it->is_regular_file(gone)) names.push_back(it->path().filename().string());
  }
  return names;
}

}  // namespace

std::vector<fs::path> BlobStore::asides(const std::string& sha256) const {
  std::vector<fs::path> found;
  for (const std::string& name : files_below(layout_.all_uploads())) {
    if (name.starts_with(sha256) && name.ends_with(kAside)) found.push_back(layout_.upload(name));
  }
  return found;
}

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
  if (!fs::exists(path)) {
    DEX_RETURN_IF_ERROR(place(temporary, sha256));
    // recover() of another replica may have looked in between.
    DEX_RETURN_IF_ERROR(files_.set_bytes(sha256, true).status());
  }
  std::error_code ignored;
  fs::remove(temporary, ignored);
  return {};
}

base::Status BlobStore::drop(const std::string& sha256) {
  DEX_ASSIGN_OR_RETURN(const fs::path path, layout_.absolute(DataLayout::blob(sha256)));
  // What went back for a record may have lost it by then, to a delete that found nothing to move:
  // so once more, until the bytes are gone or somebody who names them would find them.
  for (bool named = false; !named;) {
    // A name of its own: what this removes is what it moved before it asked, never what another
    // drop has moved since, which a new record may name.
    const fs::path aside = layout_.upload(sha256 + "." + names_.next() + kAside);
    if (::rename(path.c_str(), aside.c_str()) != 0) {
      return errno == ENOENT ? base::Status()
                             : base::errno_status(errno, "removing " + path.string());
    }
    DEX_RETURN_IF_ERROR(finish_drop(aside, sha256));
    const auto again = files_.named(sha256);
    named = !again.ok() || *again;  // not sure: recover() will look
  }
  return {};
}

base::Result<std::ifstream> BlobStore::open(const std::string& sha256) const {
  DEX_ASSIGN_OR_RETURN(const fs::path path, layout_.absolute(DataLayout::blob(sha256)));
  // A drop puts them back before it lets go of what lies aside: whoever comes too late for both
  // finds them in their place at the next look, or where another drop has them by then. Bytes with
  // a record are moved only by the few drops that were decided on before it, once by each.
  constexpr int kMostLooks = 20;
  for (int look = 0; look < kMostLooks; ++look) {
    std::ifstream file(path, std::ios::binary);
    if (file) return base::Result<std::ifstream>(std::move(file));
    for (const fs::path& aside : asides(sha256)) {
      std::ifstream moved(aside, std::ios::binary);
      if (moved) return base::Result<std::ifstream>(std::move(moved));
    }
  }
  return base::not_found("FILE_MISSING", path.string() + " is gone");
}

base::Status BlobStore::finish_drop(const fs::path& aside, const std::string& sha256) {
  const auto named = files_.named(sha256);
  if (!named.ok() || *named) {  // not sure is as good as yes: bytes too many harm nobody
    const base::Status back = place(aside, sha256);
    // Missing: another replica, at the same step, has put them back and cleared up.
    if (!back.ok() && back.reason() != "FILE_MISSING") return back;
  }
  std::error_code ignored;
  fs::remove(aside, ignored);
  return named.ok() ? base::Status() : named.status();
}

base::Result<BlobStore::Recovered> BlobStore::recover() {
  Recovered sum;
  // A delete that was killed between moving away and the end.
  for (const std::string& name : files_below(layout_.all_uploads())) {
    const std::string sha256 = name.substr(0, name.find('.'));
    if (is_sha256(sha256) && name.ends_with(kAside))
      DEX_RETURN_IF_ERROR(finish_drop(layout_.upload(name), sha256));
  }
  // A delete killed before it touched the bytes, or an upload before its record.
  DEX_ASSIGN_OR_RETURN(sum.removed, remove_unnamed());
  DEX_ASSIGN_OR_RETURN(const auto contents, files_.contents());
  for (const std::string& sha256 : contents) DEX_RETURN_IF_ERROR(check_bytes(sha256, sum));
  return sum;
}

base::Result<int64_t> BlobStore::remove_unnamed() {
  int64_t removed = 0;
  for (const std::string& sha256 : files_below(layout_.all_blobs())) {
    if (!is_sha256(sha256)) continue;
    DEX_ASSIGN_OR_RETURN(const bool named, files_.named(sha256));
    if (named) continue;
    // An upload that is just about to store its record notices in settle().
    DEX_RETURN_IF_ERROR(drop(sha256));
    ++removed;
  }
  return removed;
}

base::Status BlobStore::check_bytes(const std::string& sha256, Recovered& sum) {
  DEX_ASSIGN_OR_RETURN(const fs::path path, layout_.absolute(DataLayout::blob(sha256)));
  std::error_code unknown;
  const bool there = fs::exists(path, unknown);
  if (unknown) return base::errno_status(unknown.value(), "looking for " + path.string());
  // Aside: another replica holds them for a moment and will put them back.
  if (!there && !asides(sha256).empty()) return {};
  DEX_ASSIGN_OR_RETURN(const int64_t changed, files_.set_bytes(sha256, there));
  (there ? sum.returned : sum.lost) += changed;
  // Who puts bytes back does so before he tells the store; so a second look finds them.
  if (!there && changed > 0 && fs::exists(path, unknown)) {
    DEX_ASSIGN_OR_RETURN(const int64_t mended, files_.set_bytes(sha256, true));
    sum.lost -= mended;
  }
  return {};
}

}  // namespace dex::server
