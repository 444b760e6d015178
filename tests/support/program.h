#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "services/base/subprocess.h"

namespace dex::support {

// A program of ours as a child of the test: can be killed, frozen and started again with the same
// arguments and addresses. It dies with the test's main thread, which alone may use this object.
class Program {
 public:
  struct Options {
    std::string name;  // for messages, "agent-1"
    std::filesystem::path program;
    std::vector<std::string> args;
    std::filesystem::path log_file;  // its output, over all starts
    std::string metrics;             // address of /readyz and /metrics
    std::string grpc;                // address of its gRPC server, whose health can be watched
    // Runs something where the program lives, like another network; empty: here.
    std::function<void(const std::function<void()>&)> there;
  };
  explicit Program(Options options) : options_(std::move(options)) {}

  // Throws when it cannot be started. Does not wait until it is ready.
  void start();
  // SIGKILL; returns once it is gone. Nothing happens when it does not run.
  void kill();
  void signal(int number);
  // Its exit code, 128 + the signal that ended it, or −1 when it had to be killed after `limit_ms`.
  int wait(int64_t limit_ms);
  // SIGTERM, then as wait().
  int stop(int64_t limit_ms);

  [[nodiscard]] const std::string& name() const { return options_.name; }
  [[nodiscard]] const std::string& grpc() const { return options_.grpc; }
  [[nodiscard]] bool running() const;
  [[nodiscard]] int starts() const { return starts_; }  // how often it was started
  [[nodiscard]] pid_t pid() const { return process_->pid(); }
  // /readyz answers 200. Waits up to 20 s for a frozen one.
  [[nodiscard]] bool ready() const;
  // The sum of a metric over its labels; those with `label`, like `state="up"`, when given.
  [[nodiscard]] double metric(const std::string& metric, const std::string& label = "") const;
  [[nodiscard]] std::string log() const;
  // Its own children of that program, youngest last.
  [[nodiscard]] std::vector<pid_t> children(const std::string& program) const;

 private:
  void there(const std::function<void()>& act) const;
  [[nodiscard]] std::string page(const std::string& path) const;  // of its metrics port

  const Options options_;
  std::unique_ptr<base::Subprocess> process_;
  int starts_ = 0;
};

// A free port of loopback below those that the kernel gives to connections, so that nobody takes it
// while its program is being started again.
std::string free_address();

}  // namespace dex::support
