#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "services/base/status.h"

namespace dex::base {

// SHA-256, fed in pieces. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::string_view bytes);
  void update(std::span<const uint8_t> bytes);
  // 64 lower-case hex digits of all fed so far; afterwards the object starts anew.
  std::string hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string sha256_hex(std::string_view bytes);
// Reads the whole file in pieces of 1 MiB; blocks on the disk.
Result<std::string> sha256_file(const std::filesystem::path& path);
bool is_sha256_hex(std::string_view text);

}  // namespace dex::base
