#include "worker/train/prefix_store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "services/base/file_layer.h"
#include "services/base/sha256.h"

namespace dex::train {
namespace {

constexpr std::string_view kMagic = "dex-prefix-1\n";
constexpr size_t kHexDigits = 64;
constexpr size_t kHeader = kMagic.size() + kHexDigits + 1;  // then the content
constexpr int64_t kLooks = 16;  // the directory is looked at once a part of the bound

// Atomic by the rename, durable or not at all: a synced megabyte costs more than it saves.
class UnsyncedFiles final : public base::FileLayer {
 public:
  int fsync(int) override { return 0; }
};

std::string header_of(const std::string& name, std::string_view content) {
  base::Sha256 hash;
  hash.update(name);
  hash.update(content);
  return std::string(kMagic) + hash.hex() + "\n";
}

}  // namespace

PrefixStore::PrefixStore(Options options, const base::Clock& clock)
    : options_(std::move(options)), clock_(clock), begin_ms_(clock.now_ms()) {}

std::filesystem::path PrefixStore::path_of(const std::string& name) const {
  return options_.directory / name;
}

// The file's time is when it was last used: it outlives jobs, and all of them see it.
void PrefixStore::touch(const std::string& name) const {
  const int64_t now_ms = clock_.now_ms();
  timespec times[2] = {{0, UTIME_OMIT}, {now_ms / 1000, now_ms % 1000 * 1'000'000}};
  (void)::utimensat(AT_FDCWD, path_of(name).c_str(), times, 0);
}

bool PrefixStore::read(const std::string& name, std::span<char> content) {
  const auto size = static_cast<int64_t>(kHeader + content.size());
  const auto file = base::read_file(path_of(name), size);
  const std::string_view text = file.ok() ? std::string_view(*file) : std::string_view();
  const bool whole = text.size() == kHeader + content.size() &&
                     text.substr(0, kHeader) == header_of(name, text.substr(kHeader));
  if (!whole) {
    ++counts_.misses;
    if (file.ok() || file.status().code() != base::Code::kNotFound) {
      ++counts_.damaged;
      std::error_code ignored;
      std::filesystem::remove(path_of(name), ignored);
    }
    return false;
  }
  std::memcpy(content.data(), text.data() + kHeader, content.size());
  touch(name);
  ++counts_.hits;
  counts_.read_bytes += size;
  return true;
}

void PrefixStore::write(const std::string& name, std::string_view content) {
  const auto bytes = static_cast<int64_t>(kHeader + content.size());
  if (!full_.empty() || bytes > options_.max_bytes) return;
  // Again each time: somebody may have removed it.
  if (const auto made = base::make_directories(options_.directory); !made.ok()) {
    full_ = made.message();
    return;
  }
  if (bytes > room_ && !make_room(bytes)) return;
  UnsyncedFiles files;
  const auto written = base::write_file_atomically(
      path_of(name), header_of(name, content) + std::string(content), 0600, files);
  if (!written.ok()) {
    // Another job writes the same row at this moment, or somebody removed it all: neither is a
    // reason to stop.
    const auto code = written.code();
    if (code != base::Code::kAlreadyExists && code != base::Code::kNotFound)
      full_ = written.message();
    return;
  }
  touch(name);
  room_ -= bytes;
  counts_.written_bytes += bytes;
}

std::vector<PrefixEntry> PrefixStore::scan() const {
  std::vector<PrefixEntry> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator each(options_.directory, error), end;
       !error && each != end; each.increment(error)) {
    // Also `<name>.tmp` of a job that was killed; whatever else lies here is not ours.
    const std::string name = each->path().filename().string();
    struct stat info {};
    if (name.size() < kHexDigits || !base::is_sha256_hex(name.substr(0, kHexDigits)) ||
        ::stat(each->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode))
      continue;
    entries.push_back({name, static_cast<int64_t>(info.st_size),
                       int64_t{info.st_mtim.tv_sec} * 1000 + info.st_mtim.tv_nsec / 1'000'000});
  }
  return entries;
}

bool PrefixStore::make_room(int64_t bytes) {
  const std::vector<PrefixEntry> entries = scan();
  int64_t total = 0;
  for (const PrefixEntry& entry : entries) total += entry.bytes;
  const int64_t part = std::max(bytes, options_.max_bytes / kLooks);
  for (const PrefixEntry& entry :
       prefix_entries_to_drop(entries, options_.max_bytes, part, begin_ms_)) {
    std::error_code ignored;
    std::filesystem::remove(path_of(entry.name), ignored);
    total -= entry.bytes;
    ++counts_.dropped;
  }
  room_ = std::min(options_.max_bytes - total, part);
  if (room_ < bytes) {
    full_ = "its " + std::to_string(options_.max_bytes) + " bytes are full of what this job reads";
    return false;
  }
  const auto free = base::free_bytes(options_.directory);
  if (free.ok()) room_ = std::min(room_, *free - options_.min_free_bytes);
  if (room_ >= bytes) return true;
  full_ = "the disk has " + std::to_string(free.ok() ? *free : 0) + " bytes free, and " +
          std::to_string(options_.min_free_bytes) + " are left to others";
  return false;
}

}  // namespace dex::train
