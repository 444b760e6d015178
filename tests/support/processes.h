#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dex::support {

struct Process {
  pid_t pid = 0, parent = 0;
  int64_t started = 0;  // clock ticks since the machine's start
  std::string name;     // of its program, cut after 15 characters by the kernel
};

// Every process of the machine but the dead that nobody has waited for, oldest first: pids begin
// anew after the largest.
std::vector<Process> all_processes();
// The children of `parent` whose program has this name, youngest last.
std::vector<pid_t> children_of(pid_t parent, const std::string& name);
// How many it has of any name, also of the dead that it has not waited for.
int count_children(pid_t parent);

// What a process holds: memory that is really there, in MiB; open descriptors; threads. 0: gone.
double resident_mib(pid_t pid);
int count_descriptors(pid_t pid);
int count_threads(pid_t pid);

}  // namespace dex::support
