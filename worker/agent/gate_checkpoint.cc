#include "worker/agent/gate_checkpoint.h"

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "services/base/atomic_directory.h"
#include "services/base/files.h"
#include "services/base/sha256.h"

namespace dex::agent {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kKeptFolder = "gates-";
constexpr const char* kTrained = "trained.json";
constexpr const char* kKeptManifest = "MANIFEST.json";
constexpr const char* kArtefactManifest = "checksums.json";
constexpr const char* kReport = "results.json";
constexpr const char* kItems =
    "items-";  // and the task's number from 1 (worker/evaluate/README.md)
constexpr int64_t kLargestKept = 64 << 20;  // as the trainer's state.json
constexpr size_t kPiece = 1 << 20;

base::Status corrupt(const fs::path& path) {
  return {base::Code::kDataLoss, "ARTIFACT_CORRUPT", path.string() + " is not what was kept"};
}

// {file: sha256} of a folder, held against its hash.
struct Manifest {
  std::string text;
  nlohmann::json hashes;
};
base::Result<Manifest> read_manifest(const fs::path& folder, const char* name,
                                     const std::string& sha256) {
  Manifest manifest;
  DEX_ASSIGN_OR_RETURN(manifest.text, base::read_file(folder / name, kLargestKept));
  if (base::sha256_hex(manifest.text) != sha256) return corrupt(folder / name);
  manifest.hashes = nlohmann::json::parse(manifest.text, nullptr, false);
  if (!manifest.hashes.is_object()) return corrupt(folder / name);
  for (const auto& hash : manifest.hashes) {
    if (!hash.is_string()) return corrupt(folder / name);
  }
  return manifest;
}

// A message in protobuf JSON, a file of the folder.
base::Status read_message(const fs::path& folder, const Manifest& manifest, const char* name,
                          google::protobuf::Message& message) {
  DEX_ASSIGN_OR_RETURN(const std::string text, base::read_file(folder / name, kLargestKept));
  if (manifest.hashes.value(name, "") != base::sha256_hex(text)) return corrupt(folder / name);
  if (!google::protobuf::util::JsonStringToMessage(text, &message).ok())
    return corrupt(folder / name);
  return {};
}

base::Status copy_into(base::AtomicDirectory& folder, const fs::path& file,
                       const std::string& sha256) {
  std::ifstream in(file, std::ios::binary);
  DEX_ASSIGN_OR_RETURN(auto writer, folder.open(file.filename().string()));
  std::string piece(kPiece, '\0');
  while (in) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    const auto read = static_cast<size_t>(in.gcount());
    if (read > 0) DEX_RETURN_IF_ERROR(writer.append(std::string_view(piece).substr(0, read)));
  }
  DEX_RETURN_IF_ERROR(folder.finish(std::move(writer)));
  // Of a file that is gone or can't be read to its end too.
  return folder.entries().back().sha256 == sha256 ? base::Status() : corrupt(file);
}

base::Status copy_artefact(const fs::path& from, const std::string& manifest_sha256,
                           const fs::path& to) {
  DEX_ASSIGN_OR_RETURN(const Manifest manifest,
                       read_manifest(from, kArtefactManifest, manifest_sha256));
  DEX_RETURN_IF_ERROR(base::remove_tree(to));
  DEX_ASSIGN_OR_RETURN(auto folder, base::AtomicDirectory::create(to));
  for (const auto& [name, hash] : manifest.hashes.items())
    DEX_RETURN_IF_ERROR(copy_into(folder, from / name, hash.get<std::string>()));
  return folder.commit(kArtefactManifest, manifest.text);
}

// How the heads were chosen lies beside the artefact (worker/train), where GetFineTuningJob looks
// for it. Under no hash, and no reason to stop a job.
void copy_head_selection(const fs::path& from, const fs::path& to) {
  for (const char* name : {"head_selection.json", "head_selection.svg"}) {
    std::error_code error;
    if (!fs::copy_file(from / name, to / name, fs::copy_options::overwrite_existing, error))
      fs::remove(to / name, error);  // half of it says less than none
  }
}

}  // namespace

bool is_gate_checkpoint(const iv1::CheckpointRef& checkpoint) {
  return fs::path(checkpoint.uri()).filename().string().starts_with(kKeptFolder);
}

base::Result<iv1::CheckpointRef> keep_trained(const fs::path& attempt_dir,
                                              const iv1::TrainedState& state,
                                              const DataPaths& paths) {
  const fs::path folder =
      attempt_dir / (std::string(kKeptFolder) + std::to_string(state.evaluation().step()));
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(state, &text).ok())
    return base::internal("the trained state can't be written as JSON");
  DEX_RETURN_IF_ERROR(base::remove_tree(folder));
  DEX_ASSIGN_OR_RETURN(auto kept, base::AtomicDirectory::create(folder));
  DEX_RETURN_IF_ERROR(kept.write(kTrained, text));
  const std::string manifest =
      nlohmann::json{{kTrained, kept.entries().front().sha256}}.dump() + "\n";
  DEX_RETURN_IF_ERROR(kept.commit(kKeptManifest, manifest));
  iv1::CheckpointRef checkpoint;
  DEX_ASSIGN_OR_RETURN(*checkpoint.mutable_uri(), paths.relative(folder.string()));
  checkpoint.set_manifest_sha256(base::sha256_hex(manifest));
  checkpoint.set_step(state.progress().step());
  return checkpoint;
}

base::Result<iv1::TrainedState> take_up_trained(const iv1::CheckpointRef& checkpoint,
                                                const fs::path& attempt_dir,
                                                const DataPaths& paths) {
  DEX_ASSIGN_OR_RETURN(const fs::path folder, paths.absolute(checkpoint.uri()));
  DEX_ASSIGN_OR_RETURN(const Manifest manifest,
                       read_manifest(folder, kKeptManifest, checkpoint.manifest_sha256()));
  iv1::TrainedState state;
  DEX_RETURN_IF_ERROR(read_message(folder, manifest, kTrained, state));
  auto& result = *state.mutable_result();
  DEX_ASSIGN_OR_RETURN(const fs::path artefact, paths.absolute(result.uri()));
  const fs::path own = attempt_dir / "final";
  DEX_RETURN_IF_ERROR(copy_artefact(artefact, result.manifest_sha256(), own));
  copy_head_selection(artefact.parent_path(), attempt_dir);
  DEX_ASSIGN_OR_RETURN(*result.mutable_uri(), paths.relative(own.string()));
  return state;
}

base::Result<GateReport> read_gate_report(const iv1::AttemptResult& evaluated,
                                          const std::vector<bool>& with_items,
                                          const DataPaths& paths) {
  DEX_ASSIGN_OR_RETURN(const fs::path folder, paths.absolute(evaluated.uri()));
  DEX_ASSIGN_OR_RETURN(const Manifest manifest,
                       read_manifest(folder, kArtefactManifest, evaluated.manifest_sha256()));
  GateReport out;
  DEX_RETURN_IF_ERROR(read_message(folder, manifest, kReport, out.report));
  out.items.resize(static_cast<size_t>(out.report.results_size()));
  for (size_t task = 0; task < out.items.size() && task < with_items.size(); ++task) {
    const std::string name = kItems + std::to_string(task + 1) + ".jsonl";
    if (!with_items[task] || !manifest.hashes.contains(name)) continue;
    DEX_ASSIGN_OR_RETURN(const std::string text, base::read_file(folder / name, kLargestKept));
    if (manifest.hashes.value(name, "") != base::sha256_hex(text)) return corrupt(folder / name);
    DEX_ASSIGN_OR_RETURN(out.items[task], statistics::parse_items(text));
  }
  return out;
}

}  // namespace dex::agent
