#pragma once

#include <sys/types.h>

#include <cstddef>

namespace dex::base {

// The system calls that durable writing is made of, so that a test can let the n-th one fail or
// stop there. Each behaves as its namesake: −1 and errno on failure. Stateless by default, so
// thread-safe.
class FileLayer {
 public:
  virtual ~FileLayer() = default;
  virtual int open(const char* path, int flags, mode_t mode);
  virtual ssize_t write(int fd, const void* data, size_t size);
  virtual int fsync(int fd);
  virtual int close(int fd);
  virtual int mkdir(const char* path, mode_t mode);
  virtual int rename(const char* from, const char* to);
  virtual int unlink(const char* path);
  virtual int rmdir(const char* path);
};

// The real one.
FileLayer& system_files();

}  // namespace dex::base
