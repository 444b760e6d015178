#include "client/cpp/adapter_archive.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "services/base/files.h"
#include "services/base/sha256.h"

namespace dex::client {

namespace {

using base::Status;
namespace fs = std::filesystem;
using Pull = std::function<std::optional<std::string_view>()>;

constexpr std::string_view kChecksums = "checksums.json";
constexpr int64_t kLargestChecksums = 1 << 20;

Status corrupt(const std::string& what) {
  return {base::Code::kDataLoss, "ARTIFACT_CORRUPT", "adapter archive: " + what};
}

la_ssize_t pull(archive*, void* source, const void** buffer) {
  auto& next = *static_cast<const Pull*>(source);
  while (const auto piece = next()) {
    if (piece->empty()) continue;  // 0 would mean the end
    *buffer = piece->data();
    return static_cast<la_ssize_t>(piece->size());
  }
  return 0;
}

using Reader = std::unique_ptr<archive, decltype(&archive_read_free)>;

Status write_entry(archive* from, const fs::path& to) {
  DEX_ASSIGN_OR_RETURN(auto file, base::FileWriter::create(to));
  const void* data = nullptr;
  size_t size = 0;
  la_int64_t offset = 0;
  int64_t position = 0;
  while (true) {
    const int got = archive_read_data_block(from, &data, &size, &offset);
    if (got == ARCHIVE_EOF) break;
    if (got != ARCHIVE_OK) return corrupt(archive_error_string(from));
    if (offset != position) return corrupt(to.filename().string() + " has a hole");
    DEX_RETURN_IF_ERROR(file.append({static_cast<const char*>(data), size}));
    position += static_cast<int64_t>(size);
  }
  return file.close();
}

base::Result<std::set<std::string>> write_all(const Pull& next, const fs::path& folder) {
  Reader reader(archive_read_new(), &archive_read_free);
  archive_read_support_format_tar(reader.get());
  if (archive_read_open(reader.get(), const_cast<Pull*>(&next), nullptr, pull, nullptr) !=
      ARCHIVE_OK) {
    return corrupt(archive_error_string(reader.get()));
  }
  std::set<std::string> names;
  archive_entry* entry = nullptr;
  int got = ARCHIVE_OK;
  while ((got = archive_read_next_header(reader.get(), &entry)) == ARCHIVE_OK) {
    const char* path = archive_entry_pathname(entry);
    const std::string name = path ? path : "";
    const bool plain = !name.empty() && name.front() != '.' && name.find('/') == std::string::npos;
    if (!plain || archive_entry_filetype(entry) != AE_IFREG) {
      return corrupt("\"" + name + "\" is not a plain file of an artefact");
    }
    if (!names.insert(name).second) return corrupt(name + " comes twice");
    DEX_RETURN_IF_ERROR(write_entry(reader.get(), folder / name));
  }
  if (got != ARCHIVE_EOF) return corrupt(archive_error_string(reader.get()));
  return names;
}

Status check(const std::set<std::string>& names, const fs::path& folder) {
  if (!names.contains(std::string(kChecksums)))
    return corrupt("checksums.json is missing: the download ended early");
  DEX_ASSIGN_OR_RETURN(const std::string text,
                       base::read_file(folder / kChecksums, kLargestChecksums));
  const auto sums = nlohmann::json::parse(text, nullptr, false);
  if (!sums.is_object()) return corrupt("checksums.json is not a JSON object");
  if (sums.size() + 1 != names.size()) {
    return corrupt("checksums.json names " + std::to_string(sums.size()) + " files, " +
                   std::to_string(names.size() - 1) + " came");
  }
  for (const auto& [name, sum] : sums.items()) {
    if (!names.contains(name)) return corrupt(name + " is missing");
    DEX_ASSIGN_OR_RETURN(const std::string actual, base::sha256_file(folder / name));
    if (!sum.is_string() || actual != sum.get<std::string>()) {
      return corrupt(name + " has another SHA-256 than checksums.json says; download it again");
    }
  }
  return {};
}

// ---- the way back ----

using Sink = std::function<bool(std::string_view)>;
using Writer = std::unique_ptr<archive, decltype(&archive_write_free)>;

constexpr size_t kPackedBytes = 256 << 10;  // of one piece

la_ssize_t push(archive* to, void* target, const void* buffer, size_t size) {
  if ((*static_cast<const Sink*>(target))({static_cast<const char*>(buffer), size}))
    return static_cast<la_ssize_t>(size);
  archive_set_error(to, ECANCELED, "nobody takes the archive");
  return -1;
}

Status not_packed(archive* to) {
  const char* why = archive_error_string(to);
  return {base::Code::kCancelled, "CLIENT_CANCELLED", why != nullptr ? why : "not packed"};
}

Status pack_file(archive* to, const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  std::ifstream in(path, std::ios::binary);
  const Status unreadable =
      base::invalid_argument("INVALID_FIELD", path.string() + " can't be read");
  if (error || !in) return unreadable;
  const std::unique_ptr<archive_entry, decltype(&archive_entry_free)> entry(archive_entry_new(),
                                                                            &archive_entry_free);
  archive_entry_set_pathname(entry.get(), path.filename().c_str());
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  archive_entry_set_perm(entry.get(), 0644);
  archive_entry_set_size(entry.get(), static_cast<la_int64_t>(size));
  if (archive_write_header(to, entry.get()) != ARCHIVE_OK) return not_packed(to);
  std::string piece(kPackedBytes, '\0');
  uintmax_t left = size;
  while (left > 0) {
    in.read(piece.data(), static_cast<std::streamsize>(std::min<uintmax_t>(left, piece.size())));
    if (in.gcount() == 0) return unreadable;  // it became shorter
    const auto read = static_cast<size_t>(in.gcount());
    if (archive_write_data(to, piece.data(), read) < 0) return not_packed(to);
    left -= read;
  }
  return {};
}

Status check_adapter_folder(const fs::path& folder) {
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    std::error_code ignored;
    if (fs::is_regular_file(folder / name, ignored)) continue;
    const bool pickled = fs::exists(folder / "adapter_model.bin", ignored);
    return base::not_found(
        "RESOURCE_NOT_FOUND",
        folder.string() + " has no " + name +
            (pickled ? "; save the adapter again with safe_serialization=True, adapter_model.bin "
                       "is not taken"
                     : ": it is no folder of an adapter"));
  }
  return {};
}

Status unpack_and_check(const Pull& next, const fs::path& folder) {
  DEX_ASSIGN_OR_RETURN(const auto names, write_all(next, folder));
  return check(names, folder);
}

}  // namespace

Status unpack_adapter(const Pull& next, const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error) &&
      (!fs::is_directory(folder, error) || !fs::is_empty(folder, error))) {
    return base::invalid_argument(
        "INVALID_FIELD", folder.string() + " is there already and not empty; name a new folder");
  }
  DEX_RETURN_IF_ERROR(base::make_directories(folder, 0755));
  const Status status = unpack_and_check(next, folder);
  if (!status.ok()) fs::remove_all(folder, error);
  return status;
}

Status pack_adapter(const fs::path& folder, const Sink& sink) {
  DEX_RETURN_IF_ERROR(check_adapter_folder(folder));
  Writer writer(archive_write_new(), &archive_write_free);
  archive_write_set_format_ustar(writer.get());
  archive_write_set_bytes_per_block(writer.get(), static_cast<int>(kPackedBytes));
  archive_write_set_bytes_in_last_block(writer.get(), 1);  // no padding behind the end
  if (archive_write_open(writer.get(), const_cast<Sink*>(&sink), nullptr, push, nullptr) !=
      ARCHIVE_OK) {
    return not_packed(writer.get());
  }
  for (const char* name :
       {"checksums.json", "adapter_config.json", "provenance.json", "adapter_model.safetensors"}) {
    std::error_code ignored;
    if (!fs::is_regular_file(folder / name, ignored)) continue;
    DEX_RETURN_IF_ERROR(pack_file(writer.get(), folder / name));
  }
  return archive_write_close(writer.get()) == ARCHIVE_OK ? Status() : not_packed(writer.get());
}

}  // namespace dex::client
