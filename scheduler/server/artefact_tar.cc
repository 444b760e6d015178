#include "scheduler/server/artefact_tar.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "scheduler/server/page.h"
#include "scheduler/server/tar_writer.h"
#include "services/base/files.h"
#include "services/base/sha256.h"

namespace dex::server {

namespace {

constexpr int64_t kLargestChecksums = 1 << 20;

class ArtefactTar {
 public:
  ArtefactTar(std::filesystem::path folder, std::string whose,
              const std::function<bool(std::string)>& sink)
      : folder_(std::move(folder)),
        whose_(std::move(whose)),
        tar_([&sink](std::string_view piece) { return sink(std::string(piece)); }) {}

  base::Status send(const std::string& sha256) {
    const auto manifest = base::read_file(folder_ / "checksums.json", kLargestChecksums);
    if (!manifest.ok())
      return corrupt("checksums.json cannot be read: " + manifest.status().message());
    if (base::sha256_hex(*manifest) != sha256)
      return corrupt("checksums.json is not the one that was published");
    DEX_ASSIGN_OR_RETURN(const auto files, parse(*manifest));
    DEX_RETURN_IF_ERROR(tar_.begin("checksums.json", static_cast<int64_t>(manifest->size())));
    DEX_RETURN_IF_ERROR(tar_.append(*manifest));
    for (const auto& [name, hash] : files) DEX_RETURN_IF_ERROR(send_file(name, hash));
    return tar_.finish();
  }

 private:
  [[nodiscard]] base::Status corrupt(const std::string& what) const {
    return {base::Code::kDataLoss, "ARTIFACT_CORRUPT", whose_ + " " + what};
  }

  [[nodiscard]] base::Result<std::map<std::string, std::string>> parse(
      const std::string& text) const {
    const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return corrupt("checksums.json is not a JSON object");
    std::map<std::string, std::string> files;
    for (const auto& [name, hash] : json.items()) {
      const bool plain =
          !name.empty() && name.find('/') == std::string::npos && name != "." && name != "..";
      if (!plain || !hash.is_string()) return corrupt("checksums.json has a bad entry");
      files[name] = hash.get<std::string>();
    }
    return files;
  }

  base::Status send_file(const std::string& name, const std::string& sha256) {
    std::error_code error;
    const auto size = static_cast<int64_t>(std::filesystem::file_size(folder_ / name, error));
    if (error) return corrupt("file " + name + " is missing");
    DEX_RETURN_IF_ERROR(tar_.begin(name, size));
    std::ifstream file(folder_ / name, std::ios::binary);
    std::string piece(kPieceBytes, '\0');
    base::Sha256 hash;
    int64_t left = size;
    while (left > 0) {
      file.read(piece.data(), static_cast<std::streamsize>(std::min<int64_t>(left, kPieceBytes)));
      if (file.gcount() == 0) return corrupt("file " + name + " is shorter than it was");
      const std::string_view read(piece.data(), static_cast<size_t>(file.gcount()));
      hash.update(read);
      DEX_RETURN_IF_ERROR(tar_.append(read));
      left -= file.gcount();
    }
    if (hash.hex() != sha256) return corrupt("file " + name + " is not what its checksum says");
    return {};
  }

  const std::filesystem::path folder_;
  const std::string whose_;
  TarWriter tar_;
};

}  // namespace

base::Status send_artefact(const std::filesystem::path& folder, const std::string& sha256,
                           const std::string& whose, const std::function<bool(std::string)>& sink) {
  return ArtefactTar(folder, whose, sink).send(sha256);
}

}  // namespace dex::server
