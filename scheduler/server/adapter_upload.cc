#include "scheduler/server/adapter_upload.h"

#include <map>
#include <nlohmann/json.hpp>

#include "scheduler/server/tar_reader.h"
#include "scheduler/store/alphabet.h"
#include "services/base/files.h"
#include "services/base/json_depth.h"
#include "services/base/sha256.h"

namespace dex::server {

namespace {

constexpr const char* kUploadedConfig = "adapter_config.json";
constexpr const char* kUploadedTensors = "adapter_model.safetensors";
constexpr const char* kUploadedSums = "checksums.json";
constexpr const char* kDropped = "README.md";
// A tree of JSON may take sixty times its text, and this process serves everybody.
constexpr int64_t kLargestUploadedJson = 1 << 20;

base::Status sum_mismatch(const std::string& file, const std::string& what) {
  return base::bad_field("CHECKSUM_MISMATCH", file, what);
}

// Bytes that a file of that name may have; 0: it is not taken.
int64_t room_for(const std::string& name) {
  if (name == kUploadedTensors) return kLargestAdapterTar_bytes;
  const bool text = name == kUploadedConfig || name == kUploadedSums || name == "provenance.json" ||
                    name == kDropped;
  return text ? kLargestUploadedJson : 0;
}

class AdapterFiles final : public TarReader::Target {
 public:
  explicit AdapterFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  base::Status begin(const std::string& name, int64_t bytes) override {
    const int64_t room = room_for(name);
    if (room == 0) {
      const bool whole = name == "config.json" || name.starts_with("model");
      return base::invalid_field(
          name, whole ? "is of a whole model, and only adapters are imported"
                      : "is no file of an adapter: adapter_config.json, adapter_model.safetensors, "
                        "checksums.json and provenance.json are");
    }
    if (bytes > room)
      return base::bad_field("TOO_LARGE", name, "may have " + std::to_string(room) + " bytes");
    if (sha256_.contains(name) || (dropped_ && name == kDropped))
      return base::invalid_field(name, "comes twice");
    name_ = name;
    if (name == kDropped) {
      dropped_ = true;
      return {};
    }
    DEX_ASSIGN_OR_RETURN(auto writer, base::FileWriter::create(folder_ / name, 0600));
    writer_.emplace(std::move(writer));
    return {};
  }

  base::Status append(std::string_view bytes) override {
    return writer_ ? writer_->append(bytes) : base::Status();
  }

  base::Status end() override {
    if (!writer_) return {};
    DEX_RETURN_IF_ERROR(writer_->close());
    sha256_[name_] = writer_->sha256();
    writer_.reset();
    return {};
  }

  [[nodiscard]] const std::map<std::string, std::string>& sha256() const { return sha256_; }

 private:
  const std::filesystem::path folder_;
  std::map<std::string, std::string> sha256_;  // of what came, by name
  std::string name_;
  std::optional<base::FileWriter> writer_;  // none while a file is dropped
  bool dropped_ = false;
};

base::Result<nlohmann::json> uploaded_object(const std::filesystem::path& folder,
                                             const std::string& name) {
  DEX_ASSIGN_OR_RETURN(const std::string text,
                       base::read_file(folder / name, kLargestUploadedJson));
  if (base::nests_deeper(text)) {
    return base::invalid_field(name, "is nested deeper than " + std::to_string(base::kDeepestJson));
  }
  nlohmann::json object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return base::invalid_field(name, "is not a JSON object");
  return object;
}

base::Status check_sums(const std::filesystem::path& folder,
                        const std::map<std::string, std::string>& came) {
  DEX_ASSIGN_OR_RETURN(const nlohmann::json sums, uploaded_object(folder, kUploadedSums));
  for (const auto& [name, sum] : sums.items()) {
    const auto found = came.find(name);
    if (found == came.end() || name == kUploadedSums)
      return sum_mismatch(kUploadedSums, "names " + store::shown(name) + ", which did not come");
    if (!sum.is_string() || sum.get<std::string>() != found->second)
      return sum_mismatch(name, "has another SHA-256 than checksums.json says; send it again");
  }
  for (const auto& [name, hash] : came) {
    if (name != kUploadedSums && !sums.contains(name))
      return sum_mismatch(name, "is not named by checksums.json");
  }
  return {};
}

// Whether the files together can be an adapter.
base::Status check_files(const std::filesystem::path& folder,
                         const std::map<std::string, std::string>& came) {
  for (const char* name : {kUploadedConfig, kUploadedTensors}) {
    if (!came.contains(name)) return base::invalid_field(name, "is missing in the archive");
  }
  DEX_ASSIGN_OR_RETURN(const nlohmann::json config, uploaded_object(folder, kUploadedConfig));
  if (came.contains(kUploadedSums)) return check_sums(folder, came);
  const auto type = config.find("peft_type");
  if (type != config.end() && *type == "LORA") return {};
  return base::invalid_field(
      kUploadedSums,
      "is missing in the archive: only a LoRA folder that PEFT saved comes without it");
}

}  // namespace

base::Result<std::string> receive_adapter(const std::filesystem::path& folder,
                                          std::optional<int64_t> promised_bytes,
                                          const UploadChunks& chunks) {
  DEX_RETURN_IF_ERROR(base::make_directories(folder));
  AdapterFiles files(folder);
  TarReader reader(files);
  base::Sha256 hash;
  int64_t bytes = 0;
  while (true) {
    DEX_ASSIGN_OR_RETURN(const auto chunk, chunks());
    if (!chunk) break;
    bytes += static_cast<int64_t>(chunk->size());
    if (bytes > kLargestAdapterTar_bytes) {
      return base::bad_field(
          "TOO_LARGE", "chunk",
          "makes an archive of more than " + std::to_string(kLargestAdapterTar_bytes) + " bytes");
    }
    hash.update(std::string_view(*chunk));
    DEX_RETURN_IF_ERROR(reader.feed(*chunk));
  }
  if (promised_bytes && *promised_bytes != bytes) {
    return sum_mismatch("size_bytes", "is " + std::to_string(*promised_bytes) +
                                          " in the header, what came has " + std::to_string(bytes));
  }
  DEX_RETURN_IF_ERROR(reader.finish());
  DEX_RETURN_IF_ERROR(check_files(folder, files.sha256()));
  return hash.hex();
}

}  // namespace dex::server
