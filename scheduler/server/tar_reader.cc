#include "scheduler/server/tar_reader.h"

#include <algorithm>
#include <optional>

#include "scheduler/store/alphabet.h"

namespace dex::server {

namespace {

constexpr size_t kTarBlock = 512;
constexpr int64_t kLargestExtended = 64 << 10;

base::Status not_taken(const std::string& what) {
  return base::invalid_field("chunk", "the archive " + what);
}

std::string shown_name(const std::string& name) {
  return "\"" + store::shown(name.substr(0, 80)) + "\"";
}

std::string field_at(const std::string& header, size_t at, size_t size) {
  const std::string field = header.substr(at, size);
  return field.substr(0, field.find('\0'));
}

// Octal digits between spaces; nothing for anything else, such as GNU's numbers in base 256.
std::optional<int64_t> octal_at(const std::string& header, size_t at, size_t size) {
  std::string digits = field_at(header, at, size);
  digits.erase(std::remove(digits.begin(), digits.end(), ' '), digits.end());
  int64_t value = 0;
  for (const char c : digits) {
    if (c < '0' || c > '7') return std::nullopt;
    value = value * 8 + (c - '0');
  }
  return digits.empty() ? std::nullopt : std::optional<int64_t>(value);
}

// The sum of the header's bytes, its own field counted as spaces.
bool sum_is_right(const std::string& header) {
  int64_t sum = 0;
  for (size_t i = 0; i < kTarBlock; ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
  return octal_at(header, 148, 8) == sum;
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return c > ' ' && c <= '~' && c != '/' && c != '\\';
  });
}

// Extended records may give another name, size or kind than the header: "<length> <key>=<value>\n".
bool changes_the_member(const std::string& records) {
  for (const char* key : {" path=", " linkpath=", " size=", " GNU.sparse."}) {
    if (records.find(key) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

base::Status TarReader::feed(std::string_view bytes) {
  while (!bytes.empty() && !ended_) {
    if (member_ != Member::kNone) {
      const size_t size = std::min<size_t>(bytes.size(), static_cast<size_t>(left_));
      DEX_RETURN_IF_ERROR(take_payload(bytes.substr(0, size)));
      bytes.remove_prefix(size);
    } else if (padding_ > 0) {
      const size_t size = std::min<size_t>(bytes.size(), static_cast<size_t>(padding_));
      padding_ -= static_cast<int64_t>(size);
      bytes.remove_prefix(size);
    } else {
      const size_t size = std::min(bytes.size(), kTarBlock - header_.size());
      header_ += bytes.substr(0, size);
      bytes.remove_prefix(size);
      if (header_.size() == kTarBlock) DEX_RETURN_IF_ERROR(take_header());
    }
  }
  return {};
}

base::Status TarReader::finish() const {
  return ended_ ? base::Status() : not_taken("ended early: it has no empty block at its end");
}

base::Status TarReader::take_header() {
  const std::string header = std::move(header_);
  header_.clear();
  if (std::all_of(header.begin(), header.end(), [](char c) { return c == '\0'; })) {
    ended_ = true;
    return {};
  }
  if (!sum_is_right(header)) return not_taken("is no tar: a header's checksum is wrong");
  const auto size = octal_at(header, 124, 12);
  std::string name = field_at(header, 0, 100);
  if (header.compare(257, 6, std::string("ustar\0", 6)) == 0) {
    if (const std::string prefix = field_at(header, 345, 155); !prefix.empty())
      name = prefix + "/" + name;
  }
  if (!size) return not_taken("has a size that is not written in octal, of " + shown_name(name));
  padding_ = (static_cast<int64_t>(kTarBlock) - *size % static_cast<int64_t>(kTarBlock)) %
             static_cast<int64_t>(kTarBlock);
  left_ = *size;
  const char type = header[156];
  if (type == 'x' || type == 'g') {
    if (*size > kLargestExtended) return not_taken("has an extended header above 64 KiB");
    member_ = Member::kExtended;
    extended_.clear();
    return *size > 0 ? base::Status() : end_member();
  }
  if (type == '5' && *size == 0 && (name == "." || name == "./")) return {};
  if (type != '0' && type != '\0')
    return not_taken("holds " + shown_name(name) + ", which is no regular file");
  return begin_file(name.starts_with("./") ? name.substr(2) : name, *size);
}

base::Status TarReader::begin_file(const std::string& name, int64_t bytes) {
  if (!is_plain_name(name)) {
    return not_taken("holds " + shown_name(name) +
                     ", which is no plain name; put the files at its top");
  }
  member_ = Member::kFile;
  DEX_RETURN_IF_ERROR(target_.begin(name, bytes));
  return bytes > 0 ? base::Status() : end_member();
}

base::Status TarReader::take_payload(std::string_view piece) {
  if (member_ == Member::kExtended) {
    extended_ += piece;
  } else {
    DEX_RETURN_IF_ERROR(target_.append(piece));
  }
  left_ -= static_cast<int64_t>(piece.size());
  return left_ > 0 ? base::Status() : end_member();
}

base::Status TarReader::end_member() {
  const Member member = member_;
  member_ = Member::kNone;
  if (member == Member::kFile) return target_.end();
  if (changes_the_member(extended_))
    return not_taken("has an extended header with a path or size; write it as ustar");
  return {};
}

}  // namespace dex::server
