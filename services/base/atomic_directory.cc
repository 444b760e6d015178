#include "services/base/atomic_directory.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "services/base/errno_status.h"

namespace dex::base {

AtomicDirectory::AtomicDirectory(fs::path final_path, FileLayer& layer)
    : final_(std::move(final_path)), temporary_(final_), layer_(&layer) {
  temporary_ += ".tmp";
}

AtomicDirectory::AtomicDirectory(AtomicDirectory&& other) noexcept
    : final_(std::move(other.final_)),
      temporary_(std::move(other.temporary_)),
      layer_(other.layer_),
      open_(std::exchange(other.open_, false)),
      entries_(std::move(other.entries_)) {}

Result<AtomicDirectory> AtomicDirectory::create(fs::path final_path, FileLayer& layer) {
  // "out/" ends in an empty name: its `.tmp` would lie inside the directory that is not there.
  if (!final_path.has_filename()) final_path = final_path.parent_path();
  struct stat info {};
  if (::lstat(final_path.c_str(), &info) == 0) {
    return errno_status(EEXIST, "cannot write " + final_path.string());
  }
  AtomicDirectory directory(std::move(final_path), layer);
  DEX_RETURN_IF_ERROR(remove_tree(directory.temporary_));
  if (layer.mkdir(directory.temporary_.c_str(), 0700) != 0) {
    return errno_status(errno, "cannot make directory " + directory.temporary_.string());
  }
  directory.open_ = true;
  return directory;
}

AtomicDirectory::~AtomicDirectory() {
  discard();
}

void AtomicDirectory::discard() {
  if (!open_) return;
  open_ = false;
  // Best effort: readers ignore `.tmp`, and the next writer of this name removes it.
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

Status AtomicDirectory::write(std::string_view name, std::string_view content) {
  DEX_ASSIGN_OR_RETURN(auto writer, open(name));
  DEX_RETURN_IF_ERROR(writer.append(content));
  return finish(std::move(writer));
}

Result<FileWriter> AtomicDirectory::open(std::string_view name) {
  if (!open_) return internal("write into the finished directory " + final_.string());
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string_view::npos) {
    return internal("not a plain file name: " + std::string(name));
  }
  return FileWriter::create(temporary_ / name, 0644, *layer_);
}

Status AtomicDirectory::finish(FileWriter writer) {
  DEX_RETURN_IF_ERROR(writer.close());
  entries_.push_back({writer.path().filename().string(), writer.size_bytes(), writer.sha256()});
  return {};
}

Status AtomicDirectory::commit(std::string_view manifest_name, std::string_view manifest) {
  DEX_RETURN_IF_ERROR(write(manifest_name, manifest));
  DEX_RETURN_IF_ERROR(sync_directory(temporary_, *layer_));
  if (layer_->rename(temporary_.c_str(), final_.c_str()) != 0) {
    const int error = errno;
    discard();
    return errno_status(error, "cannot rename " + temporary_.string());
  }
  open_ = false;
  return sync_directory(final_.parent_path(), *layer_);
}

}  // namespace dex::base
