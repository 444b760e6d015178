#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "scheduler/store/connection.h"
#include "tests/support/temporary_directory.h"

namespace dex::support {

// A private redis-server on a Unix socket in a temporary directory, set up as dexd does: AOF, fsync
// always, noeviction. It ends with this object, and with the thread that started it.
class RedisServer {
 public:
  // Ignores SIGPIPE, as every main of ours does: a killed server closes its connections.
  // `more_config`: lines of redis.conf that follow ours.
  explicit RedisServer(std::string more_config = "") : more_config_(std::move(more_config)) {
    ::signal(SIGPIPE, SIG_IGN);
    start();
  }
  ~RedisServer() { kill(); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  [[nodiscard]] store::RedisAddress address() const { return {socket(), "", 0, "", ""}; }
  [[nodiscard]] std::string socket() const { return (directory_.path() / "redis.sock").string(); }
  [[nodiscard]] pid_t pid() const { return pid_; }

  // kill -9, as a crash would.
  void kill() {
    if (pid_ <= 0) return;
    {
      const std::lock_guard lock(mutex_);
      connection_.reset();
    }
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // The same data again. Returns once it answers.
  void start() {
    write_config();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // a test looks at its system calls
      const int null = ::open("/dev/null", O_RDWR);
      ::dup2(null, 0);
      ::dup2(null, 1);
      ::execlp("redis-server", "redis-server", config_.c_str(), nullptr);
      ::_exit(127);
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!answers()) {
      if (std::chrono::steady_clock::now() > until)
        throw std::runtime_error("redis-server did not start");
      ::usleep(5000);
    }
  }
  void restart() {
    kill();
    start();
  }
  // One command; throws on any error. Thread-safe.
  store::Reply call(const std::vector<std::string>& args) {
    const std::lock_guard lock(mutex_);
    if (connection_ == nullptr) {
      auto made = store::Connection::connect(address(), std::chrono::seconds(2));
      if (!made.ok()) throw std::runtime_error(made.status().to_string());
      connection_ = std::move(made).value();
    }
    const store::Answer answer = connection_->call(args);
    if (!answer.ok && answer.error == store::ErrorClass::kIo) connection_.reset();
    if (!answer.ok) throw std::runtime_error(answer.message);
    return answer.reply;
  }

 private:
  void write_config() {
    config_ = (directory_.path() / "redis.conf").string();
    std::ofstream(config_)
        << "port 0\nunixsocket " << socket() << "\nunixsocketperm 700\ndir "
        << directory_.path().string()
        << "\nappendonly yes\nappendfsync always\nno-appendfsync-on-rewrite no\n"
           "aof-load-truncated yes\nsave \"\"\nmaxmemory 256mb\nmaxmemory-policy noeviction\n"
           "hash-max-listpack-value 512\nstream-node-max-bytes 1024\n"
           "enable-debug-command no\nloglevel warning\nlogfile redis.log\n"
        << more_config_;
  }
  bool answers() {
    auto connection = store::Connection::connect(address(), std::chrono::seconds(1));
    return connection.ok() && (*connection)->call({"PING"}).ok;
  }

  const std::string more_config_;
  TemporaryDirectory directory_;
  std::string config_;
  pid_t pid_ = -1;
  std::mutex mutex_;  // guards connection_
  std::unique_ptr<store::Connection> connection_;
};

}  // namespace dex::support
