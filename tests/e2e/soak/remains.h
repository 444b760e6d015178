#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/support/chaos_platform.h"
#include "tests/support/redis_server.h"

namespace dex::support {

// What a platform holds at a moment, written so that two moments can be compared.
struct Remains {
  // A line for each key of Redis: its name, and of a hash the fields, of a set the members. Without
  // the memory of request_ids (`idem:`), which goes by itself after a day: see immortal_requests().
  std::vector<std::string> keys;
  // Every file below the data directory, and the folder of every job.
  std::vector<std::string> files;

  // Of the platform's processes, by name.
  struct Held {
    int children = 0, descriptors = 0, threads = 0;
    double resident_mib = 0;
  };
  std::map<std::string, Held> processes;
};

Remains remains_of(ChaosPlatform& platform);

// What one has and the other has not: "+ …" came, "- …" went.
std::vector<std::string> difference(const std::vector<std::string>& before,
                                    const std::vector<std::string>& after);

// Keys of request_ids that do not go within a day.
std::vector<std::string> immortal_requests(RedisServer& redis);

}  // namespace dex::support
