#include "worker/agent/supervised_process.h"

#include <fstream>

namespace dex::agent {

std::string name_of(const SupervisedProcess& process) {
  if (process.program.empty()) return "";
  std::string name = process.program + " (process " + std::to_string(process.pid);
  if (!process.worker.empty()) name += " on worker " + process.worker;
  return name + ")";
}

std::string activity_of(pid_t pid) {
  // proc(5): "4711 (name) S …"; the name may hold anything, so its last parenthesis counts.
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat, '\0');
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return "";
  switch (stat[name_end + 2]) {
    case 'R':
      return "running";
    case 'S':
    case 'I':
      return "sleeping";
    case 'D':
      return "waiting for a disk";
    case 'T':
    case 't':
      return "stopped";
    case 'Z':
    case 'X':
      return "ended";
    default:
      return "";
  }
}

}  // namespace dex::agent
