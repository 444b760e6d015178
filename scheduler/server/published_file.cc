#include "scheduler/server/published_file.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "services/base/files.h"
#include "services/base/sha256.h"

namespace dex::server {

namespace {

// The worker keeps at most 500 rows a task (worker/serve/evaluation_messages.h), so that a reply
// stays below gRPC's 4 MiB; as JSON they are longer.
constexpr int64_t kLargestPart = 8 << 20;

}  // namespace

base::Status corrupt_results(const std::string& job, const std::string& what) {
  return {base::Code::kDataLoss, "ARTIFACT_CORRUPT", "the results of " + job + ": " + what};
}

base::Result<std::map<std::string, std::string>> published_checksums(const store::JobRecord& record,
                                                                     const DataLayout& layout) {
  const auto folder = layout.absolute(record.result_uri);
  DEX_RETURN_IF_ERROR(folder.status());
  const auto manifest = base::read_file(*folder / "checksums.json", kLargestPart);
  if (!manifest.ok()) return corrupt_results(record.id, manifest.status().message());
  if (base::sha256_hex(*manifest) != record.result_sha256)
    return corrupt_results(record.id, "checksums.json is not what was published");
  const auto json = nlohmann::json::parse(*manifest, nullptr, false);
  if (!json.is_object()) return corrupt_results(record.id, "checksums.json is no JSON object");
  std::map<std::string, std::string> checksums;
  for (const auto& [name, hash] : json.items()) {
    if (hash.is_string()) checksums[name] = hash.get<std::string>();
  }
  return checksums;
}

base::Result<std::map<std::string, std::string>> evaluation_checksums(
    const store::JobRecord& record, const DataLayout& layout, const std::string& what) {
  if (record.state != "SUCCEEDED") {
    return base::failed_precondition("JOB_STATE_CONFLICT",
                                     "The evaluation '" + record.id + "' is " + record.state +
                                         ": " + what + " there once it has SUCCEEDED.")
        .with_metadata("state", record.state);
  }
  return published_checksums(record, layout);
}

base::Result<std::string> published_file(const store::JobRecord& record, const DataLayout& layout,
                                         const std::string& name) {
  DEX_ASSIGN_OR_RETURN(const auto checksums, published_checksums(record, layout));
  const auto folder = layout.absolute(record.result_uri);
  DEX_RETURN_IF_ERROR(folder.status());
  auto bytes = base::read_file(*folder / name, kLargestPart);
  if (!bytes.ok()) return corrupt_results(record.id, bytes.status().message());
  const auto hash = checksums.find(name);
  if (hash == checksums.end() || hash->second != base::sha256_hex(*bytes))
    return corrupt_results(record.id, name + " is not what was published");
  return bytes;
}

base::Result<std::vector<std::string>> published_names(const store::JobRecord& record,
                                                       const DataLayout& layout,
                                                       const std::string& ending) {
  DEX_ASSIGN_OR_RETURN(const auto checksums, published_checksums(record, layout));
  std::vector<std::string> names;
  for (const auto& [name, hash] : checksums) {
    if (name.ends_with(ending)) names.push_back(name);
  }
  return names;
}

base::Result<std::optional<std::string>> attempt_file(const store::JobRecord& record,
                                                      const DataLayout& layout,
                                                      const std::string& name) {
  DEX_ASSIGN_OR_RETURN(const auto folder, layout.absolute(record.result_uri));
  const auto path = folder.parent_path() / name;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::optional<std::string>();
  auto bytes = base::read_file(path, kLargestPart);
  if (!bytes.ok()) return corrupt_results(record.id, bytes.status().message());
  return std::optional<std::string>(std::move(bytes).value());
}

}  // namespace dex::server
