#include "scheduler/server/tar_writer.h"

#include <array>
#include <cstdio>
#include <cstring>

namespace dex::server {

namespace {

constexpr size_t kBlock = 512;
constexpr int64_t kLargest = (int64_t{1} << 33) - 1;  // eleven octal digits

// POSIX.1-1988 ustar.
std::array<char, kBlock> header(const std::string& name, int64_t bytes) {
  std::array<char, kBlock> block{};
  std::memcpy(block.data(), name.data(), name.size());
  std::snprintf(block.data() + 100, 8, "%07o", 0644);
  std::snprintf(block.data() + 108, 8, "%07o", 0);
  std::snprintf(block.data() + 116, 8, "%07o", 0);
  std::snprintf(block.data() + 124, 12, "%011llo", static_cast<unsigned long long>(bytes));
  std::snprintf(block.data() + 136, 12, "%011o", 0);
  block[156] = '0';
  std::memcpy(block.data() + 257,
              "ustar\0"
              "00",
              8);
  std::memset(block.data() + 148, ' ', 8);  // the checksum counts itself as spaces
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  std::snprintf(block.data() + 148, 8, "%06o", sum);
  return block;
}

}  // namespace

base::Status TarWriter::send(std::string_view bytes) {
  if (!sink_(bytes))
    return {base::Code::kCancelled, "CLIENT_CANCELLED", "nobody takes the archive"};
  sent_ += static_cast<int64_t>(bytes.size());
  return {};
}

base::Status TarWriter::pad() {
  if (left_ != 0)
    return base::internal("archive: a file ended " + std::to_string(left_) + " bytes early");
  static constexpr std::array<char, kBlock> kZeros{};
  const size_t over = static_cast<size_t>(sent_) % kBlock;
  return over == 0 ? base::Status() : send({kZeros.data(), kBlock - over});
}

base::Status TarWriter::begin(const std::string& name, int64_t bytes) {
  DEX_RETURN_IF_ERROR(pad());
  if (name.empty() || name.size() > 99 || bytes < 0 || bytes > kLargest) {
    return base::internal("archive: '" + name + "' does not fit a ustar header");
  }
  const auto block = header(name, bytes);
  left_ = bytes;
  return send({block.data(), block.size()});
}

base::Status TarWriter::append(std::string_view bytes) {
  left_ -= static_cast<int64_t>(bytes.size());
  if (left_ < 0) return base::internal("archive: a file grew while it was read");
  return send(bytes);
}

base::Status TarWriter::finish() {
  DEX_RETURN_IF_ERROR(pad());
  static constexpr std::array<char, 2 * kBlock> kEnd{};
  return send({kEnd.data(), kEnd.size()});
}

}  // namespace dex::server
