#include "services/base/memory_room.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace dex::base {

namespace {

constexpr int64_t kNobodySays = std::numeric_limits<int64_t>::max();

// The number behind `name` in a file of lines "name 123"; nothing where there is no such file, no
// such line, or no number, as in "max".
std::optional<int64_t> number_in(const std::filesystem::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream rest(line.substr(name.size()));
    int64_t number = 0;
    if (rest >> number) return number;
  }
  return std::nullopt;
}

int64_t left_by_machine(const std::filesystem::path& root) {
  const auto available_kb = number_in(root / "proc/meminfo", "MemAvailable:");
  return available_kb ? *available_kb * 1024 : kNobodySays;
}

// A group's limit holds for all groups below it together, so those above count as well.
int64_t left_by_groups(const std::filesystem::path& root) {
  std::ifstream own(root / "proc/self/cgroup");
  std::filesystem::path group;
  for (std::string line; std::getline(own, line);) {
    if (line.starts_with("0::")) group = std::filesystem::path(line.substr(3)).relative_path();
  }
  int64_t left = kNobodySays;
  for (;; group = group.parent_path()) {
    const auto folder = root / "sys/fs/cgroup" / group;
    const auto limit = number_in(folder / "memory.max", "");
    const auto used = number_in(folder / "memory.current", "");
    if (limit && used) {
      const auto cache = number_in(folder / "memory.stat", "active_file ").value_or(0) +
                         number_in(folder / "memory.stat", "inactive_file ").value_or(0);
      left = std::min(left, std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - cache)));
    }
    if (group.empty()) return left;
  }
}

}  // namespace

MemoryRoom memory_room(const std::filesystem::path& root) {
  const int64_t machine = left_by_machine(root), groups = left_by_groups(root);
  return {std::min(machine, groups), groups < machine};
}

}  // namespace dex::base
