#pragma once

#include <cerrno>

#include "services/base/file_layer.h"

namespace dex::support {

// Counts the calls of a writer and lets the n-th one (from 1) fail with `error`. With `stops` every
// later call fails too, as if the process had died there: nothing is cleaned up either.
class FailingFileLayer : public base::FileLayer {
 public:
  FailingFileLayer(int fail_at, int error, bool stops)
      : fail_at_(fail_at), error_(error), stops_(stops) {}
  [[nodiscard]] int calls() const { return calls_; }
  [[nodiscard]] bool dead() const { return stops_ && calls_ >= fail_at_; }

  int open(const char* path, int flags, mode_t mode) override {
    return fails() ? -1 : FileLayer::open(path, flags, mode);
  }
  ssize_t write(int fd, const void* data, size_t size) override {
    if (fails()) {
      // A dying writer leaves half of its bytes.
      if (stops_ && calls_ == fail_at_) (void)FileLayer::write(fd, data, size / 2);
      return -1;
    }
    return FileLayer::write(fd, data, size);
  }
  int fsync(int fd) override { return fails() ? -1 : FileLayer::fsync(fd); }
  int close(int fd) override {
    const bool failed = fails();
    const int result = FileLayer::close(fd);  // never leak a descriptor in a test
    if (failed) errno = error_;
    return failed ? -1 : result;
  }
  int mkdir(const char* path, mode_t mode) override {
    return fails() ? -1 : FileLayer::mkdir(path, mode);
  }
  int rename(const char* from, const char* to) override {
    return fails() ? -1 : FileLayer::rename(from, to);
  }
  int unlink(const char* path) override { return fails() ? -1 : FileLayer::unlink(path); }
  int rmdir(const char* path) override { return fails() ? -1 : FileLayer::rmdir(path); }

 private:
  bool fails() {
    ++calls_;
    const bool now = calls_ == fail_at_ || (stops_ && calls_ > fail_at_);
    if (now) errno = error_;
    return now;
  }

  const int fail_at_;
  const int error_;
  const bool stops_;
  int calls_ = 0;
};

}  // namespace dex::support
