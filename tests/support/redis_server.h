#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/store/connection.h"
#include "services/base/append_log.h"
#include "tests/support/temporary_directory.h"

namespace dex::support {

// A private redis-server on a Unix socket in a temporary directory, set up as dexd does: AOF, fsync
// always, noeviction. It ends with this object, and with the thread that started it.
class RedisServer {
 public:
  // Ignores SIGPIPE, as every main of ours does: a killed server closes its connections.
  // `more_config`: lines of redis.conf that follow ours. `launcher`: words before "redis-server",
  // e.g. env with a variable; must exec it.
  explicit RedisServer(std::string more_config = "", std::vector<std::string> launcher = {})
      : more_config_(std::move(more_config)), words_(std::move(launcher)) {
    ::signal(SIGPIPE, SIG_IGN);
    config_ = (directory_.path() / "redis.conf").string();
    words_.insert(words_.end(), {"redis-server", config_});
    start();
  }
  ~RedisServer() { kill(); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  [[nodiscard]] store::RedisAddress address() const { return {socket(), "", 0, "", ""}; }
  [[nodiscard]] std::string socket() const { return (directory_.path() / "redis.sock").string(); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  // SIGSTOP, SIGCONT; nothing happens while it does not run.
  void signal(int number) const {
    if (pid_ > 0) ::kill(pid_, number);
  }

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
  // Where its logs lie.
  [[nodiscard]] std::filesystem::path log_directory() const {
    return directory_.path() / "appendonlydir";
  }
  // The same data again, looked after as dexd does. Returns once it answers.
  void start() {
    write_config();
    if (const auto cut = base::cut_torn_transaction(log_directory()); !cut.ok())
      throw std::runtime_error(cut.status().to_string());
    std::vector<char*> words;
    for (std::string& word : words_) words.push_back(word.data());
    words.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // a test looks at its system calls
      const int null = ::open("/dev/null", O_RDWR);
      ::dup2(null, 0);
      ::dup2(null, 1);
      ::execvp(words[0], words.data());
      ::_exit(127);
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!answers()) {
      if (std::chrono::steady_clock::now() > until)
        throw std::runtime_error("redis-server did not start: " + last_words());
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
      // Patient: a test that looks at a large store on a busy machine has no other way to know.
      auto made = store::Connection::connect(address(), std::chrono::seconds(30));
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
    std::ofstream(config_)
        << "port 0\nunixsocket " << socket() << "\nunixsocketperm 700\ndir "
        << directory_.path().string()
        << "\nappendonly yes\nappendfsync always\nno-appendfsync-on-rewrite no\n"
           "aof-load-truncated yes\nsave \"\"\nmaxmemory 256mb\nmaxmemory-policy noeviction\n"
           "hash-max-listpack-value 512\nstream-node-max-bytes 1024\n"
           "enable-debug-command no\nloglevel warning\nlogfile redis.log\n"
        << more_config_;
  }
  // The end of its log, and how it ended if it has.
  std::string last_words() {
    int status = 0;
    const bool gone = ::waitpid(pid_, &status, WNOHANG) == pid_;
    if (gone) pid_ = -1;
    std::ifstream log((directory_.path() / "redis.log").string());
    const std::string all{std::istreambuf_iterator<char>(log), {}};
    return (gone ? "ended with status " + std::to_string(status) : "it runs") +
           "; its log: " + all.substr(all.size() < kLogEnd ? 0 : all.size() - kLogEnd);
  }
  bool answers() {
    auto connection = store::Connection::connect(address(), std::chrono::seconds(1));
    return connection.ok() && (*connection)->call({"PING"}).ok;
  }

  static constexpr size_t kLogEnd = 2000;  // bytes

  const std::string more_config_;
  TemporaryDirectory directory_;
  std::string config_;
  std::vector<std::string> words_;  // of its command line
  pid_t pid_ = -1;
  std::mutex mutex_;  // guards connection_
  std::unique_ptr<store::Connection> connection_;
};

}  // namespace dex::support
