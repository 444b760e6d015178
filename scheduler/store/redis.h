#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "scheduler/store/connection.h"
#include "scheduler/store/script.h"
#include "services/base/status.h"

namespace dex::store {

// A small pool of connections to one Redis. A call that meets a lost connection or a Redis that is
// loading repeats itself on a new connection until its patience is over: scripts are made to be
// sent twice (jobs.md §3). Then: UNAVAILABLE `STORE_UNAVAILABLE`. Thread-safe; calls block.
class Redis {
 public:
  struct Options {
    RedisAddress address;
    size_t connections = 8;
    std::chrono::milliseconds command_timeout{2000};
    // How long one call tries. Shorter than an RPC's deadline, so that a dead Redis doesn't hold
    // all threads of the server: clients are told to come back (RetryInfo).
    std::chrono::milliseconds patience{3000};
    // Runs on every new connection before its first use; an error discards the connection.
    std::function<base::Status(Connection&)> on_connect;
    // After every call: what it was ("claim", "XRANGE"), how long, and the error class or "".
    std::function<void(std::string_view name, double seconds, std::string_view error)> observe;
  };
  explicit Redis(Options options);

  base::Result<Reply> command(const std::vector<std::string>& args);
  // EVALSHA with one key, the prefix; loads the script when Redis does not know it.
  base::Result<Reply> run(const Script& script, const std::string& prefix,
                          const std::vector<std::string>& args);
  // Calls that wait give up at once; for the end of the process.
  void close();

 private:
  base::Result<Reply> repeat(std::string_view name, const std::vector<std::string>& args,
                             const Script* script);
  base::Result<std::unique_ptr<Connection>> acquire(std::chrono::steady_clock::time_point until);
  void release(std::unique_ptr<Connection> connection);  // null: it was discarded
  bool pause(std::chrono::milliseconds time, std::chrono::steady_clock::time_point until);

  const Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Connection>> idle_;
  size_t open_ = 0;  // idle and in use
  bool closed_ = false;
};

}  // namespace dex::store
