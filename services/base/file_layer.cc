#include "services/base/file_layer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

namespace dex::base {

int FileLayer::open(const char* path, int flags, mode_t mode) {
  return ::open(path, flags, mode);
}
ssize_t FileLayer::write(int fd, const void* data, size_t size) {
  return ::write(fd, data, size);
}
int FileLayer::fsync(int fd) {
  return ::fsync(fd);
}
int FileLayer::close(int fd) {
  return ::close(fd);
}
int FileLayer::mkdir(const char* path, mode_t mode) {
  return ::mkdir(path, mode);
}
int FileLayer::rename(const char* from, const char* to) {
  return ::rename(from, to);
}
int FileLayer::unlink(const char* path) {
  return ::unlink(path);
}
int FileLayer::rmdir(const char* path) {
  return ::rmdir(path);
}

FileLayer& system_files() {
  static FileLayer layer;
  return layer;
}

}  // namespace dex::base
