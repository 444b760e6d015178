#include "worker/train/host_memory.h"

#include <fstream>
#include <string>

namespace dex::train {

int64_t peak_host_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

}  // namespace dex::train
