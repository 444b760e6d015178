#include "worker/agent/earlier_checkpoint.h"

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "services/base/files.h"
#include "services/base/sha256.h"

namespace dex::agent {

namespace {

constexpr const char* kTrainersManifest = "MANIFEST.json";
constexpr int64_t kLargestTrainersManifest = 1 << 20;

// A folder of the trainer as what a job can point to.
std::optional<iv1::CheckpointRef> checkpoint_in(const std::filesystem::path& folder,
                                                const DataPaths& paths) {
  if (!folder.filename().string().starts_with("step-")) return std::nullopt;
  const auto text = base::read_file(folder / kTrainersManifest, kLargestTrainersManifest);
  const auto uri = paths.relative(folder.string());
  if (!text.ok() || !uri.ok()) return std::nullopt;  // half written, or half removed
  const auto manifest = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object() || !manifest.contains("step") || !manifest["step"].is_number_unsigned())
    return std::nullopt;
  iv1::CheckpointRef checkpoint;
  checkpoint.set_uri(*uri);
  checkpoint.set_manifest_sha256(base::sha256_hex(*text));
  checkpoint.set_step(manifest["step"].get<uint32_t>());
  return checkpoint;
}

}  // namespace

std::optional<iv1::CheckpointRef> earlier_checkpoint(const iv1::CheckpointRef& broken,
                                                     const DataPaths& paths) {
  const auto folder = paths.absolute(broken.uri());
  if (!folder.ok()) return std::nullopt;
  std::optional<iv1::CheckpointRef> best;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder->parent_path(), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    auto found = checkpoint_in(entry->path(), paths);
    if (!found || found->step() >= broken.step()) continue;
    // Of two at one step the later one: training went back and came by again.
    const auto rank = [](const iv1::CheckpointRef& c) {
      return std::pair(c.step(), std::pair(c.uri().size(), c.uri()));
    };
    if (!best || rank(*found) > rank(*best)) best = std::move(found);
  }
  return best;
}

}  // namespace dex::agent
