#pragma once

#include <sys/types.h>

#include <string>

// Which process of which worker ran an attempt, and what it was at when it was given up.
namespace dex::agent {

struct SupervisedProcess {
  std::string program;  // "dex-trainer"; empty: not known
  pid_t pid = 0;
  std::string worker;  // whose agent started it; empty: not said
};

// "dex-trainer (process 4711 on worker w1)"; "" where it is not known.
std::string name_of(const SupervisedProcess& process);

// What the kernel says that a process of this machine does: "running", "sleeping", "waiting for a
// disk", "stopped", "ended"; "" where there is none. A process that sleeps or waits without an end
// is looked for elsewhere than one that computes. Reads /proc.
std::string activity_of(pid_t pid);

}  // namespace dex::agent
