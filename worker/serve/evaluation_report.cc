#include "worker/serve/evaluation_report.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>

#include "services/base/atomic_directory.h"
#include "services/base/files.h"
#include "services/base/sha256.h"

namespace dex::serve {
namespace {

constexpr const char* kResults = "results.json";
constexpr const char* kReport = "report.md";
constexpr int64_t kLargestSaved = 16 << 20;
constexpr int64_t kLargestMore = int64_t{1} << 30;

void require(const base::Status& status) {
  using Kind = DiskFailure::Kind;
  if (status.ok()) return;
  throw DiskFailure(status.message(), status.reason() == "STORAGE_FULL"     ? Kind::kFull
                                      : status.reason() == "QUOTA_EXCEEDED" ? Kind::kQuota
                                                                            : Kind::kOther);
}

std::string json_text(const dex::v1::EvaluationReport& report) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.add_whitespace = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(report, &text, options);
  if (!status.ok()) throw std::runtime_error("results as JSON: " + std::string(status.message()));
  return text;
}

std::string saved_file(const std::filesystem::path& path, int64_t most = kLargestSaved) {
  auto bytes = base::read_file(path, most);
  if (!bytes.ok()) throw std::runtime_error(bytes.status().message());
  return std::move(bytes).value();
}

// {file: sha256}, held against its own hash.
nlohmann::json saved_hashes(const std::filesystem::path& directory, const std::string& manifest,
                            const std::string& manifest_sha256) {
  const std::string text = saved_file(directory / manifest);
  if (base::sha256_hex(text) != manifest_sha256)
    throw std::runtime_error(manifest + " is not what was saved");
  nlohmann::json hashes = nlohmann::json::parse(text, nullptr, false);
  if (!hashes.is_object()) throw std::runtime_error(manifest + " is no JSON object");
  return hashes;
}

std::string checked_file(const std::filesystem::path& directory, const std::string& name,
                         const nlohmann::json& hashes, int64_t most = kLargestSaved) {
  std::string content = saved_file(directory / name, most);
  if (hashes.value(name, "") != base::sha256_hex(content))
    throw std::runtime_error(name + " is not what was saved");
  return content;
}

}  // namespace

SavedReport save_report(const std::filesystem::path& directory, const std::string& manifest,
                        const dex::v1::EvaluationReport& report, const std::string& markdown,
                        const SavedFiles& files) {
  require(base::remove_tree(directory));
  auto folder = base::AtomicDirectory::create(directory);
  require(folder.status());
  require(folder->write(kResults, json_text(report)));
  if (!markdown.empty()) require(folder->write(kReport, markdown));
  for (const auto& [name, content] : files) require(folder->write(name, content));
  SavedReport saved{.path = directory};
  nlohmann::json hashes = nlohmann::json::object();
  for (const auto& entry : folder->entries()) {
    hashes[entry.name] = entry.sha256;
    saved.bytes += entry.size_bytes;
  }
  const std::string text = hashes.dump(1) + "\n";
  saved.bytes += static_cast<int64_t>(text.size());
  saved.manifest_sha256 = base::sha256_hex(text);
  require(folder->commit(manifest, text));
  return saved;
}

dex::v1::EvaluationReport load_report(const std::filesystem::path& directory,
                                      const std::string& manifest,
                                      const std::string& manifest_sha256) {
  const nlohmann::json hashes = saved_hashes(directory, manifest, manifest_sha256);
  const std::string results = checked_file(directory, kResults, hashes);
  dex::v1::EvaluationReport report;
  const auto status = google::protobuf::util::JsonStringToMessage(results, &report);
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  return report;
}

SavedFiles load_files(const std::filesystem::path& directory, const std::string& manifest,
                      const std::string& manifest_sha256, const std::string& prefix) {
  const nlohmann::json hashes = saved_hashes(directory, manifest, manifest_sha256);
  SavedFiles out;
  for (const auto& [name, hash] : hashes.items()) {
    if (name.starts_with(prefix))
      out.emplace_back(name, checked_file(directory, name, hashes, kLargestMore));
  }
  return out;
}

}  // namespace dex::serve
