#include "services/base/process_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "services/base/errno_status.h"

namespace dex::base {

Result<Fd> lock_file(const std::filesystem::path& path) {
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return errno_status(errno, "cannot open " + path.string());
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return errno_status(errno, "cannot lock " + path.string());
    char text[32] = {};
    const ssize_t got = pread(fd.get(), text, sizeof text - 1, 0);
    std::string holder = got > 0 ? std::string(text, static_cast<size_t>(got)) : "unknown";
    while (!holder.empty() && holder.back() == '\n') holder.pop_back();
    return unavailable("LOCKED", path.string() + " is held by process " + holder);
  }
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(fd.get(), 0) != 0 || pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) {
    return errno_status(errno, "cannot write " + path.string());
  }
  return fd;
}

}  // namespace dex::base
