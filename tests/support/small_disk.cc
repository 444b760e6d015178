#include "tests/support/small_disk.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "services/base/fd.h"
#include "tests/support/own_namespace.h"

namespace dex::support {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFiller = "filler";

}  // namespace

void enter_own_mounts() {
  enter_own_namespace(CLONE_NEWNS);
  // What is mounted here is not to show elsewhere. In a chroot "/" is no mount point, and this
  // fails: there is nothing to share then.
  (void)::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
}

SmallDisk::SmallDisk(fs::path folder, int64_t bytes) : folder_(std::move(folder)) {
  fs::create_directories(folder_);
  const std::string size = "mode=0700,size=" + std::to_string(bytes);
  if (::mount("tmpfs", folder_.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, size.c_str()) != 0) {
    throw std::runtime_error("no disk on " + folder_.string() + ": " + std::strerror(errno));
  }
}

SmallDisk::~SmallDisk() {
  (void)::umount2(folder_.c_str(), MNT_DETACH);
}

void SmallDisk::fill() const {
  const base::Fd filler(
      ::open((folder_ / kFiller).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const std::string zeros(64 << 10, '\0');
  ssize_t written = 1;
  while (written > 0) written = ::write(filler.get(), zeros.data(), zeros.size());
  if (errno != ENOSPC) throw std::runtime_error("not full: " + std::string(std::strerror(errno)));
}

void SmallDisk::make_room() const {
  fs::remove(folder_ / kFiller);
}

}  // namespace dex::support
