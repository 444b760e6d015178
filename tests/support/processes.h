#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace dex::support {

struct Process {
  pid_t pid = 0, parent = 0;
  std::string name;  // of its program, cut after 15 characters by the kernel
};

// Every process of the machine but the dead that nobody has waited for, by rising pid.
std::vector<Process> all_processes();
// The children of `parent` whose program has this name, youngest last.
std::vector<pid_t> children_of(pid_t parent, const std::string& name);

}  // namespace dex::support
