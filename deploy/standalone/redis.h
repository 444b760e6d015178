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

// Writes DIR/redis/redis.conf and a fresh password for `program`. An empty program means that none
// was found: FAILED_PRECONDITION with the command that installs it.
base::Result<RedisSetup> prepare_redis(const std::string& program,
                                       const std::filesystem::path& data_dir,
                                       base::RandomSource& random);

// Before each start, while no Redis runs on these files: what a kill left of a script is cut off
// its log (base/append_log.h), and logged. Reads the whole log.
void mend_redis_log(const RedisSetup& redis);

// OK when it answers PING; UNAVAILABLE while it starts, loads its log, or is gone. Blocks at most
// two seconds.
base::Status ping_redis(const RedisSetup& redis);

}  // namespace dex::standalone
