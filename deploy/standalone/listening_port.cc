#include "deploy/standalone/listening_port.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace dex::standalone {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kListening = "0A";  // TCP_LISTEN, as the kernel prints it

template <typename Number>
bool parse(std::string_view text, Number& number, int base = 10) {
  return !text.empty() &&
         std::from_chars(text.data(), text.data() + text.size(), number, base).ec == std::errc();
}

// "socket:[12345]" of each open descriptor.
std::set<uint64_t> socket_inodes(pid_t pid) {
  constexpr std::string_view kPrefix = "socket:[";
  std::set<uint64_t> inodes;
  std::error_code error;
  for (const auto& entry :
       fs::directory_iterator(fs::path("/proc") / std::to_string(pid) / "fd", error)) {
    const std::string target = fs::read_symlink(entry.path(), error).string();
    uint64_t inode = 0;
    if (target.starts_with(kPrefix) && parse(target.substr(kPrefix.size()), inode)) {
      inodes.insert(inode);
    }
  }
  return inodes;
}

}  // namespace

// A row: "sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode …", the local
// address as hexadecimal address:port.
uint16_t listening_port_in(std::string_view table, const std::set<uint64_t>& inodes) {
  constexpr size_t kLocal = 1;
  constexpr size_t kState = 3;
  constexpr size_t kInode = 9;
  uint16_t smallest = 0;
  std::istringstream lines{std::string(table)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> row;
    for (std::string word; row.size() <= kInode && words >> word;) row.push_back(word);
    uint64_t inode = 0;
    if (row.size() <= kInode || row[kState] != kListening || !parse(row[kInode], inode)) continue;
    uint16_t port = 0;
    const auto colon = row[kLocal].rfind(':');
    if (colon == std::string::npos || !parse(row[kLocal].substr(colon + 1), port, 16)) continue;
    if (inodes.contains(inode) && (smallest == 0 || port < smallest)) smallest = port;
  }
  return smallest;
}

base::Result<uint16_t> listening_port(pid_t pid) {
  const fs::path table = fs::path("/proc") / std::to_string(pid) / "net" / "tcp";
  std::ifstream in(table);  // the kernel says no size of it
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const uint16_t port = listening_port_in(text, socket_inodes(pid));
  if (port != 0) return port;
  return base::unavailable("NOT_READY",
                           "process " + std::to_string(pid) + " listens on no port yet");
}

}  // namespace dex::standalone
