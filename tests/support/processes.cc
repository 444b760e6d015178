#include "tests/support/processes.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "tests/support/content_of.h"

namespace dex::support {

std::vector<Process> all_processes() {
  std::vector<Process> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string id = entry.path().filename();
    if (id.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = content_of(entry.path() / "stat");
    const size_t close = stat.rfind(')');
    if (close == std::string::npos) continue;
    std::istringstream rest(stat.substr(close + 1));
    char state = 0;
    Process process;
    rest >> state >> process.parent;
    if (state == 'Z') continue;
    process.pid = std::stoi(id);
    // comm, between the brackets: at most 15 characters, as long as the longest program of ours.
    const size_t open = stat.find('(');
    process.name = stat.substr(open + 1, close - open - 1);
    found.push_back(process);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.pid < b.pid; });
  return found;
}

std::vector<pid_t> children_of(pid_t parent, const std::string& name) {
  std::vector<pid_t> children;
  for (const Process& process : all_processes()) {
    if (process.parent == parent && process.name == name) children.push_back(process.pid);
  }
  return children;
}

}  // namespace dex::support
