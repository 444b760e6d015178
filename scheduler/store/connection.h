#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/store/reply.h"
#include "services/base/status.h"

struct redisContext;

namespace dex::store {

// Where Redis listens and how to log in.
struct RedisAddress {
  std::string unix_path;  // wins over host and port
  std::string host;
  int port = 0;
  std::string username;  // empty: the default user
  std::string password;  // empty: no login

  // "unix:/path" or "host:port".
  static base::Result<RedisAddress> parse(const std::string& text);
  [[nodiscard]] std::string to_string() const;  // without the password
};

// How a call ended, for the caller that decides whether to repeat it (jobs.md §8, errors by
// prefix).
enum class ErrorClass {
  kIo,         // connection lost, timeout, protocol: the connection is dead, repeat on a new one
  kTransient,  // LOADING, BUSY, MISCONF, OOM, READONLY, CLUSTERDOWN, TRYAGAIN: later
  kNoScript,   // load the script and repeat
  kForbidden,  // NOAUTH, WRONGPASS, NOPERM, MOVED, ASK: the operator must act
  kOther,      // a fault of ours
};
std::string_view name(ErrorClass error);  // the label of dex_redis_errors_total

// The outcome of one command.
struct Answer {
  bool ok = false;
  Reply reply;
  ErrorClass error = ErrorClass::kIo;
  std::string message;
};

// One connection to Redis. Owned by one thread at a time. Every call waits at most the timeout
// given to connect(). After ErrorClass::kIo the object is of no more use: Redis' late reply would
// answer the next command.
class Connection {
 public:
  // Connects and logs in.
  static base::Result<std::unique_ptr<Connection>> connect(const RedisAddress& address,
                                                           std::chrono::milliseconds timeout);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Answer call(const std::vector<std::string>& args);

 private:
  explicit Connection(redisContext* context) : context_(context) {}
  redisContext* context_;
};

}  // namespace dex::store
