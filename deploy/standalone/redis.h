#pragma once

#include <filesystem>
#include <string>

#include "services/base/random.h"
#include "services/base/status.h"

namespace dex::standalone {

// The private Redis of one machine (jobs.md §8): Unix socket only, every write on the disk before
// it is acknowledged, password in a file of mode 0600.
struct RedisSetup {
  std::string program;                // redis-server
  std::filesystem::path config_file;  // its only argument
  std::filesystem::path socket;       // mode 0700; paths of sockets are short by nature
  std::filesystem::path password_file;
  std::string password;
};

// Finds redis-server and writes DIR/redis/redis.conf and a fresh password. FAILED_PRECONDITION with
// the command that installs it when the program is missing.
base::Result<RedisSetup> prepare_redis(const std::filesystem::path& data_dir,
                                       base::RandomSource& random);

// OK when it answers PING; UNAVAILABLE while it starts, loads its log, or is gone. Blocks at most
// two seconds.
base::Status ping_redis(const RedisSetup& redis);

}  // namespace dex::standalone
