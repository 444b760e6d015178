#include "tests/fuzz/target.h"

#include <sys/stat.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace dex::fuzz {

namespace {

constexpr std::string_view kBorder = "\n=====\n";
std::atomic<uint64_t> count{0};

}  // namespace

void taken() {
  ++count;
}

uint64_t taken_count() {
  return count;
}

void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "expected otherwise: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

void check(const base::Status& status) {
  require(status.ok() || !status.message().empty(), "a refusal without words");
}

std::filesystem::path file_with(std::string_view bytes, const std::string& name) {
  // Of the process that asks first, which removes it at its end: the driver asks before its
  // children.
  static const support::TemporaryDirectory directory;
  const auto path = directory / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
  chmod(path.c_str(), S_IRUSR | S_IWUSR);
  return path;
}

std::vector<std::string> parts_of(std::string_view input) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = input.find(kBorder, begin);
    parts.emplace_back(input.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + kBorder.size();
  }
}

std::string joined(const std::vector<std::string>& parts) {
  std::string input;
  for (size_t i = 0; i < parts.size(); ++i) input.append(i > 0 ? kBorder : "").append(parts[i]);
  return input;
}

}  // namespace dex::fuzz
