#include "tests/support/processes.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "tests/support/content_of.h"

namespace dex::support {

namespace {

namespace fs = std::filesystem;

constexpr double kMiB = 1 << 20;

// Also of the dead that nobody has waited for: `state` is then 'Z'. Nothing: it is gone.
std::optional<Process> read_process(const fs::path& folder, char& state) {
  const std::string id = folder.filename();
  if (id.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  const std::string stat = content_of(folder / "stat");
  const size_t close = stat.rfind(')');
  if (close == std::string::npos) return std::nullopt;
  std::istringstream rest(stat.substr(close + 1));
  Process process;
  rest >> state >> process.parent;
  std::string skipped;
  for (int field = 5; field < 22; ++field) rest >> skipped;
  rest >> process.started;
  process.pid = std::stoi(id);
  // comm, between the brackets: at most 15 characters, as long as the longest program of ours.
  const size_t open = stat.find('(');
  process.name = stat.substr(open + 1, close - open - 1);
  return process;
}

int count_entries(const fs::path& folder) {
  std::error_code gone;
  fs::directory_iterator entry(folder, gone);
  int count = 0;
  for (; !gone && entry != fs::directory_iterator(); entry.increment(gone)) ++count;
  return count;
}

fs::path folder_of(pid_t pid) {
  return fs::path("/proc") / std::to_string(pid);
}

}  // namespace

std::vector<Process> all_processes() {
  std::vector<Process> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    char state = 0;
    auto process = read_process(entry.path(), state);
    if (process && state != 'Z') found.push_back(*std::move(process));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::pair(a.started, a.pid) < std::pair(b.started, b.pid);
  });
  return found;
}

std::vector<pid_t> children_of(pid_t parent, const std::string& name) {
  std::vector<pid_t> children;
  for (const Process& process : all_processes()) {
    if (process.parent == parent && process.name == name) children.push_back(process.pid);
  }
  return children;
}

int count_children(pid_t parent) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    char state = 0;
    const auto process = read_process(entry.path(), state);
    if (process && process->parent == parent) ++count;
  }
  return count;
}

double resident_mib(pid_t pid) {
  // In pages: all of it, then what is resident.
  std::istringstream sizes(content_of(folder_of(pid) / "statm"));
  double total = 0, resident = 0;
  sizes >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / kMiB;
}

int count_descriptors(pid_t pid) {
  return count_entries(folder_of(pid) / "fd");
}

int count_threads(pid_t pid) {
  return count_entries(folder_of(pid) / "task");
}

}  // namespace dex::support
