#include "services/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "services/base/errno_status.h"
#include "services/base/fd.h"

namespace dex::base {

Result<std::string> read_file(const fs::path& path, int64_t max_bytes) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer; a regular file does not care.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return errno_status(errno, "cannot open " + path.string());
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return errno_status(errno, "cannot stat " + path.string());
  if (!S_ISREG(info.st_mode)) {
    return invalid_argument("NOT_A_FILE", path.string() + " is not a regular file");
  }
  if (info.st_size > max_bytes) {
    return invalid_argument("TOO_LARGE", path.string() + " has " + std::to_string(info.st_size) +
                                             " bytes, at most " + std::to_string(max_bytes) +
                                             " are allowed");
  }
  std::string content(static_cast<size_t>(info.st_size), '\0');
  size_t at = 0;
  while (at < content.size()) {
    const ssize_t got = ::read(fd.get(), content.data() + at, content.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_status(errno, "cannot read " + path.string());
    if (got == 0) break;  // it shrank while being read: what is there is what we return
    at += static_cast<size_t>(got);
  }
  content.resize(at);
  return content;
}

Status write_file_atomically(const fs::path& path, std::string_view content, mode_t mode,
                             FileLayer& layer) {
  fs::path temporary = path;
  temporary += ".tmp";
  layer.unlink(temporary.c_str());  // left by a writer that died
  DEX_ASSIGN_OR_RETURN(auto writer, FileWriter::create(temporary, mode, layer));
  DEX_RETURN_IF_ERROR(writer.append(content));
  DEX_RETURN_IF_ERROR(writer.close());
  if (layer.rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    layer.unlink(temporary.c_str());
    return errno_status(error, "cannot rename " + temporary.string());
  }
  return sync_directory(path.parent_path(), layer);
}

FileWriter::FileWriter(fs::path path, int fd, FileLayer& layer)
    : path_(std::move(path)), fd_(fd), layer_(&layer) {}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      layer_(other.layer_),
      keep_(std::exchange(other.keep_, true)),
      size_bytes_(other.size_bytes_),
      hash_(std::move(other.hash_)),
      sha256_(std::move(other.sha256_)) {}

Result<FileWriter> FileWriter::create(fs::path path, mode_t mode, FileLayer& layer) {
  const int fd = layer.open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return errno_status(errno, "cannot create " + path.string());
  return FileWriter(std::move(path), fd, layer);
}

FileWriter::~FileWriter() {
  if (!keep_) discard();
}

void FileWriter::discard() {
  if (fd_ >= 0) layer_->close(std::exchange(fd_, -1));
  layer_->unlink(path_.c_str());
  keep_ = true;
}

Status FileWriter::fail(int error, std::string_view what) {
  discard();
  return errno_status(error, "cannot " + std::string(what) + " " + path_.string());
}

Status FileWriter::append(std::string_view bytes) {
  if (fd_ < 0) return internal("write to the closed file " + path_.string());
  hash_.update(bytes);
  while (!bytes.empty()) {
    const ssize_t written = layer_->write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return fail(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(written));
    size_bytes_ += written;
  }
  return {};
}

Status FileWriter::close() {
  if (fd_ < 0) return internal("second close of " + path_.string());
  if (layer_->fsync(fd_) != 0) return fail(errno, "sync");
  // Some file systems report a failed write only here.
  if (layer_->close(std::exchange(fd_, -1)) != 0) return fail(errno, "close");
  sha256_ = hash_.hex();
  keep_ = true;
  return {};
}

Status rename_durably(const fs::path& from, const fs::path& to, FileLayer& layer) {
  if (layer.rename(from.c_str(), to.c_str()) != 0) {
    return errno_status(errno, "cannot rename " + from.string() + " to " + to.string());
  }
  DEX_RETURN_IF_ERROR(sync_directory(to.parent_path(), layer));
  if (from.parent_path() == to.parent_path()) return {};
  return sync_directory(from.parent_path(), layer);
}

Status sync_directory(const fs::path& path, FileLayer& layer) {
  const fs::path directory = path.empty() ? fs::path(".") : path;
  const int fd = layer.open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (fd < 0) return errno_status(errno, "cannot open " + directory.string());
  const int synced = layer.fsync(fd);
  const int error = errno;
  layer.close(fd);
  if (synced != 0) return errno_status(error, "cannot sync " + directory.string());
  return {};
}

Status make_directories(const fs::path& path, mode_t mode, FileLayer& layer) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return {};
    return errno_status(ENOTDIR, "cannot make directory " + path.string());
  }
  const fs::path parent = path.parent_path();
  if (!parent.empty() && parent != path) {
    DEX_RETURN_IF_ERROR(make_directories(parent, mode, layer));
  }
  if (layer.mkdir(path.c_str(), mode) != 0) {
    // Another process may make the same directory at the same time.
    if (errno == EEXIST) return {};
    return errno_status(errno, "cannot make directory " + path.string());
  }
  return sync_directory(parent, layer);
}

Status remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return errno_status(error.value(), "cannot remove " + path.string());
  return {};
}

Result<int64_t> free_bytes(const fs::path& path) {
  struct statvfs info {};
  if (statvfs(path.c_str(), &info) != 0) {
    return errno_status(errno, "cannot ask for free space at " + path.string());
  }
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

Result<double> free_ratio(const fs::path& path) {
  struct statvfs info {};
  if (statvfs(path.c_str(), &info) != 0) {
    return errno_status(errno, "cannot ask for free space at " + path.string());
  }
  if (info.f_blocks == 0) return 0.0;
  return static_cast<double>(info.f_bavail) / static_cast<double>(info.f_blocks);
}

}  // namespace dex::base
