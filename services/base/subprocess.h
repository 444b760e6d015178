#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/base/fd.h"
#include "services/base/status.h"

namespace dex::base {

// How a process ended: by itself with a code, or by a signal.
struct ExitStatus {
  int code = 0;    // meaningful when signal = 0
  int signal = 0;  // 0: it called exit
  [[nodiscard]] bool success() const { return code == 0 && signal == 0; }
  [[nodiscard]] std::string to_string() const;  // "exit code 3", "signal 9 (Killed)"
};

// A child process in a process group of its own, started with posix_spawn (never a plain fork: gRPC
// and CUDA forbid it). It inherits only stdin, stdout, stderr and the descriptors named, an empty
// signal mask and default dispositions. Destroyed while running: the group is killed. Thread-safe.
//
// Let the child call die_with_parent(): its death signal follows the *thread* that started it, so
// start children from a thread that lives as long as they may.
class Subprocess {
 public:
  struct Options {
    std::string program;            // a path, or a name looked up in PATH
    std::vector<std::string> args;  // without the program's name
    // Added to the parent's environment, replacing what has the same name.
    std::vector<std::pair<std::string, std::string>> environment;
    // Descriptors of this process that the child gets as 3, 4, … in this order; they stay open
    // here.
    std::vector<int> inherit;
    // Output is appended to these files, made when missing; empty: the parent's own.
    std::filesystem::path stdout_file;
    std::filesystem::path stderr_file;
    int niceness = 0;  // added to the parent's
  };

  static Result<std::unique_ptr<Subprocess>> start(const Options& options);
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  // Readable (poll) once the child has ended.
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }

  // The end of the child, or nullopt when it still runs after timeout_ms (0: just look).
  std::optional<ExitStatus> wait(int64_t timeout_ms);
  // To the whole group; nothing happens once it has ended.
  void signal(int number);
  // SIGTERM to the group, up to grace_ms, then SIGKILL to the group; waits until the child is gone.
  ExitStatus terminate(int64_t grace_ms);

 private:
  Subprocess(pid_t pid, Fd pidfd);
  std::optional<ExitStatus> reap(bool block);

  const pid_t pid_;
  const Fd pidfd_;
  std::mutex mutex_;
  std::optional<ExitStatus> exit_;
};

// Called first in a child's main: SIGKILL when the thread that started it ends. False when the
// parent is already gone (then leave). `parent` is its pid, or 0 when unknown.
[[nodiscard]] bool die_with_parent(pid_t parent = 0);

}  // namespace dex::base
