#pragma once

#include <cstdint>
#include <filesystem>

namespace dex::base {

// How many more bytes this process can use before something is swapped out or ended. Memory that
// only caches files counts as free, since the kernel gives it away when asked.
struct MemoryRoom {
  int64_t bytes = 0;          // INT64_MAX: nobody says
  bool of_container = false;  // the limit of a control group is what binds, not the machine
};

// What the machine has available, or what the control groups of this process (cgroup v2) leave,
// whichever is less; the latter's limits are those of containers and services. Reads a few small
// files below `root`, which is "/" but for tests.
MemoryRoom memory_room(const std::filesystem::path& root = "/");

}  // namespace dex::base
