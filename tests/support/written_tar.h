#pragma once

#include <archive.h>
#include <archive_entry.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dex::support {

// Name and content, or where a symbolic link points.
using TarEntries = std::vector<std::pair<std::string, std::string>>;

// A tar as libarchive writes it, with these entries in this order; `type` of all of them. Their
// time has a fraction of a second, for which pax needs an extended header.
inline std::string written_tar(const TarEntries& entries, unsigned type = AE_IFREG,
                               int format = ARCHIVE_FORMAT_TAR_USTAR) {
  std::string bytes(1 << 20, '\0');
  size_t used = 0;
  archive* writer = archive_write_new();
  archive_write_set_format(writer, format);
  archive_write_open_memory(writer, bytes.data(), bytes.size(), &used);
  for (const auto& [name, content] : entries) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_filetype(entry, type);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_mtime(entry, 1'764'000'000, 5);
    if (type == AE_IFLNK) archive_entry_set_symlink(entry, content.c_str());
    archive_entry_set_size(entry, type == AE_IFREG ? static_cast<int64_t>(content.size()) : 0);
    archive_write_header(writer, entry);
    if (type == AE_IFREG) archive_write_data(writer, content.data(), content.size());
    archive_entry_free(entry);
  }
  archive_write_free(writer);
  bytes.resize(used);
  return bytes;
}

}  // namespace dex::support
