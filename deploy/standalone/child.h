#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "services/base/clock.h"
#include "services/base/status.h"
#include "services/base/subprocess.h"

namespace dex::standalone {

// One process of the platform: started, watched, started again with back-off when it dies, stopped.
// It dies with this process, even by kill -9: it is started through `dexd --as-child`. Not
// thread-safe; the main thread, which outlives all children, owns it.
class Child {
 public:
  struct Options {
    std::string name;      // "scheduler"
    std::string launcher;  // this program, for --as-child
    std::string program;
    std::function<std::vector<std::string>()> args;  // asked at each start
    std::filesystem::path log_file;                  // its output, appended
    std::vector<int> inherit;                        // descriptors it keeps open
    int64_t stop_grace_ms = 15'000;                  // between SIGTERM and SIGKILL
    int64_t first_backoff_ms = 1'000;
    int64_t last_backoff_ms = 30'000;
    int64_t healthy_ms = 60'000;  // lived so long: the next back-off starts from the first
  };
  Child(Options options, const base::Clock& clock);

  base::Status start();
  // The end of the process, once for each end; nullopt while it runs or waits for its next start.
  std::optional<base::ExitStatus> ended();
  // After an end: when its back-off is over, starts it again.
  void restart_when_due();
  // SIGTERM, and SIGKILL after the grace or when `urgent` says so. Blocks.
  void stop(const std::stop_token& urgent);

  [[nodiscard]] bool running() const { return process_ != nullptr; }
  [[nodiscard]] const std::string& name() const { return options_.name; }
  [[nodiscard]] pid_t pid() const { return process_ ? process_->pid() : 0; }
  // What it wrote last, for the message when it does not start.
  [[nodiscard]] std::string last_lines() const;

 private:
  const Options options_;
  const base::Clock& clock_;
  std::unique_ptr<base::Subprocess> process_;
  int64_t started_ms_ = 0;
  int64_t backoff_ms_ = 0;
  int64_t due_ms_ = 0;
};

// What `dexd --as-child PARENT PROGRAM ARGS…` does: ties its life to the parent's and becomes the
// program. Returns only on failure.
int run_as_child(int argc, char** argv);

}  // namespace dex::standalone
