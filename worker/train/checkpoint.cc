#include "worker/train/checkpoint.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <torch/version.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "services/base/atomic_directory.h"
#include "services/base/errno_status.h"
#include "services/base/fd.h"
#include "services/base/files.h"
#include "services/base/sha256.h"
#include "services/base/version.h"
#include "worker/kernels/gemm.h"
#include "worker/model/safetensors.h"
#include "worker/train/disk_failure.h"
#include "worker/train/failure.h"
#include "worker/train/job.h"
#include "worker/train/tensor_file.h"

namespace dex::train {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int64_t kMinAgeMs = 60'000;  // two default leases (jobs.md §4)
constexpr int64_t kMaxManifestBytes = 1 << 20, kMaxStateBytes = 64 << 20;
constexpr const char* kManifest = "MANIFEST.json";
constexpr const char* kBestFile = "best.safetensors";

[[noreturn]] void broken(const fs::path& file, const std::string& what) {
  throw Failure(Exit::kBrokenCheckpoint, "internal", "checkpoint " + file.string() + ": " + what,
                "checkpoint_dir");
}

// Bytes that are missing or other ones stay so. A disk or a network that answers with an error may
// answer better later: that is no reason to give the checkpoint up.
[[noreturn]] void unreadable(const fs::path& file, const base::Status& status) {
  if (status.code() == base::Code::kNotFound || status.code() == base::Code::kInvalidArgument)
    broken(file, status.message());
  throw Failure(Exit::kRetryable, "internal",
                "checkpoint " + file.string() + ": " + status.message(), "checkpoint_dir");
}

json identity_json(const Identity& identity) {
  return {{"spec_sha256", identity.spec_sha256},
          {"base_weights_sha256", identity.base_weights_sha256},
          {"tokenizer_sha256", identity.tokenizer_sha256},
          {"chat_template_sha256", identity.chat_template_sha256},
          {"training_sha256", identity.training_sha256},
          {"validation_sha256", identity.validation_sha256},
          {"start_adapter_sha256", identity.start_adapter_sha256}};
}

std::string manifest_of(const CheckpointStore::Options& options, int64_t step,
                        int64_t optimizer_updates,
                        const std::vector<base::AtomicDirectory::Entry>& entries) {
  json files = json::array();
  for (const auto& entry : entries) {
    files.push_back({{"name", entry.name}, {"size", entry.size_bytes}, {"sha256", entry.sha256}});
  }
  const json manifest = {{"version", 1},
                         {"step", step},
                         {"attempt", options.attempt},
                         {"optimizer_updates", optimizer_updates},
                         {"micro_batch_size", options.geometry.micro_batch_size},
                         {"threads", options.geometry.threads},
                         {"gemm", options.geometry.gemm},
                         {"ranks", options.geometry.ranks},
                         {"identity", identity_json(options.identity)},
                         {"code", std::string(base::version()) + "+" + std::string(base::commit())},
                         {"libtorch", TORCH_VERSION},
                         {"files", files}};
  return manifest.dump(1);
}

// The file as the disk has it: the page cache's copy is given back first.
std::string hash_from_disk(const fs::path& path) {
  const base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd) ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  auto hash = base::sha256_file(path);
  throw_if_bad(hash.ok() ? base::Status() : hash.status());
  return std::move(hash).value();
}

void verify_on_disk(const fs::path& directory,
                    const std::vector<base::AtomicDirectory::Entry>& entries) {
  for (const auto& entry : entries) {
    if (hash_from_disk(directory / entry.name) == entry.sha256) continue;
    std::error_code ignored;
    fs::remove_all(directory, ignored);
    throw Failure(Exit::kRetryable, "internal",
                  "checkpoint " + (directory / entry.name).string() +
                      " reads back other bytes than were written");
  }
}

// Flat values of this layout, by name.
std::vector<std::pair<std::string, at::Tensor>> named(const FlatParameters& parameters,
                                                      const at::Tensor& flat) {
  std::vector<std::pair<std::string, at::Tensor>> values;
  for (const auto& piece : parameters.pieces())
    values.emplace_back(piece.name, FlatParameters::view(flat, piece));
  return values;
}

base::Status write_all(base::AtomicDirectory& directory, const TrainState& state,
                       const FlatParameters& parameters, const AdamW& optimizer,
                       const at::Tensor& best_values, const CheckpointStore::Options& options) {
  DEX_RETURN_IF_ERROR(
      write_tensors(directory, "adapter.safetensors", named(parameters, parameters.values())));
  if (best_values.defined())
    DEX_RETURN_IF_ERROR(write_tensors(directory, kBestFile, named(parameters, best_values)));
  DEX_RETURN_IF_ERROR(write_tensors(
      directory, "optimizer.safetensors",
      {{"first_moment", optimizer.first_moment()}, {"second_moment", optimizer.second_moment()}}));
  DEX_RETURN_IF_ERROR(directory.write("state.json", to_json(state)));
  return directory.commit(
      kManifest, manifest_of(options, state.step, optimizer.updates(), directory.entries()));
}

// `step-<n>`. Where that is taken, by a run before in the same directory or by a way that training
// has left since, the next free of `step-<n>-2` and so on: a job may point to what is there.
fs::path free_path(const fs::path& directory, int64_t step) {
  const std::string name = "step-" + std::to_string(step);
  std::error_code ignored;
  fs::path path = directory / name;
  for (int next = 2; fs::exists(fs::symlink_status(path, ignored)); ++next)
    path = directory / (name + "-" + std::to_string(next));
  return path;
}

// Its manifest first: what a death in between leaves is no checkpoint to anybody.
void remove_checkpoint(const fs::path& path) {
  std::error_code ignored;  // a directory that stays costs space, nothing else
  fs::remove(path / kManifest, ignored);
  fs::remove_all(path, ignored);
}

}  // namespace

CheckpointStore::CheckpointStore(const Options& options, const base::Clock& clock,
                                 base::FileLayer& files)
    : options_(options), clock_(clock), files_(files) {}

SavedCheckpoint CheckpointStore::save(const TrainState& state, const FlatParameters& parameters,
                                      const AdamW& optimizer, const at::Tensor& best_values,
                                      bool best) {
  const int64_t begin_ms = clock_.steady_ms();
  const fs::path path = free_path(options_.directory, state.step);
  auto directory = base::AtomicDirectory::create(path, files_);
  throw_if_bad(directory.ok() ? base::Status() : directory.status());
  throw_if_bad(write_all(*directory, state, parameters, optimizer, best_values, options_));
  verify_on_disk(path, directory->entries());

  SavedCheckpoint saved;
  saved.path = path;
  saved.step = state.step;
  saved.best = best;
  saved.manifest_sha256 = directory->entries().back().sha256;
  for (const auto& entry : directory->entries()) saved.bytes += entry.size_bytes;
  saved.seconds = clock_.seconds_since(begin_ms);
  if (best) {
    for (Kept& other : kept_) other.saved.best = false;
  }
  kept_.push_back({saved, clock_.steady_ms()});
  prune();
  return saved;
}

const SavedCheckpoint* CheckpointStore::last() const {
  const auto newest =
      std::find_if(kept_.rbegin(), kept_.rend(), [](const Kept& kept) { return !kept.left; });
  return newest == kept_.rend() ? nullptr : &newest->saved;
}

void CheckpointStore::go_back(int64_t step, int64_t best_step) {
  for (Kept& kept : kept_) {
    kept.left = kept.left || kept.saved.step > step;
    kept.saved.best = !kept.left && kept.saved.step == best_step;
  }
}

bool CheckpointStore::is_held(const Kept& kept) const {
  if (clock_.steady_ms() - kept.at_ms < kMinAgeMs) return true;
  if (kept.saved.best && options_.keep_best) return true;
  const auto is = [&kept](const fs::path& path) {
    return path.lexically_normal() == kept.saved.path.lexically_normal();
  };
  return is(held_.acknowledged) || is(held_.offered) || is(held_.way_back);
}

void CheckpointStore::prune() {
  int32_t last = 0;  // that stay because they are the last ones
  for (size_t i = kept_.size(); i-- > 0;) {
    const bool among_last = !kept_[i].left && last < options_.keep_last;
    if (among_last) ++last;
    if (among_last || is_held(kept_[i])) continue;
    remove_checkpoint(kept_[i].saved.path);
    kept_.erase(kept_.begin() + static_cast<int64_t>(i));
  }
}

namespace {

std::string read_text(const fs::path& path, int64_t limit) {
  auto text = base::read_file(path, limit);
  if (!text.ok()) unreadable(path, text.status());
  return std::move(text).value();
}

json read_manifest(const fs::path& directory, const std::string& expected) {
  const fs::path path = directory / kManifest;
  const std::string text = read_text(path, kMaxManifestBytes);
  if (!expected.empty() && base::sha256_hex(text) != expected) {
    broken(path, "has SHA-256 " + base::sha256_hex(text) + ", expected " + expected);
  }
  json manifest = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object()) broken(path, "is not a JSON object");
  return manifest;
}

void check_files(const fs::path& directory, const json& manifest) {
  for (const json& file : manifest.at("files")) {
    const fs::path path = directory / fs::path(file.at("name").get<std::string>()).filename();
    std::error_code error;
    const auto size = static_cast<int64_t>(fs::file_size(path, error));
    if (error) unreadable(path, base::errno_status(error.value(), "cannot read its size"));
    if (size != file.at("size").get<int64_t>()) {
      broken(path, "has " + std::to_string(size) + " bytes, expected " +
                       std::to_string(file.at("size").get<int64_t>()));
    }
    const auto hash = base::sha256_file(path);
    if (!hash.ok()) unreadable(path, hash.status());
    if (hash.value() != file.at("sha256").get<std::string>())
      broken(path, "does not match its SHA-256");
  }
}

bool lists(const json& manifest, const std::string& name) {
  const json& files = manifest.at("files");
  return std::any_of(files.begin(), files.end(),
                     [&name](const json& file) { return file.at("name") == name; });
}

void check_identity(const fs::path& directory, const json& saved, const Identity& identity) {
  const json expected = identity_json(identity);
  for (const auto& [name, value] : expected.items()) {
    const std::string found = saved.value(name, "");
    if (found == value.get<std::string>()) continue;
    const std::string message =
        "checkpoint " + directory.string() + " was made with another " + name + ": " +
        (found.empty() ? "none" : found) + ", this job has " +
        (value.get<std::string>().empty() ? "none" : value.get<std::string>());
    if (name == "spec_sha256")
      throw Failure(Exit::kBadSpec, "invalid_hyperparameter", message, "checkpoint_dir");
    if (name == "training_sha256" || name == "validation_sha256") {
      throw Failure(Exit::kBadData, "invalid_training_file", message, "checkpoint_dir");
    }
    // None of these is called this worker's fault: one file that an operator changes would put
    // every worker out of service that claims the job. The base has just been held against the
    // allow-list, so it is the one to train on here, and no other worker has what the job began
    // with.
    if (name == "base_weights_sha256") {
      throw Failure(Exit::kBadSpec, "adapter_mismatch",
                    message +
                        ": the base model was changed after the job began. Create the job again to "
                        "train on the weights that are there now, or put the former ones back and "
                        "have the job redriven",
                    "model");
    }
    // Of a tokenizer, a template or an adapter nobody knows whose copy is the right one.
    throw Failure(Exit::kRetryable, "internal", message, "checkpoint_dir");
  }
}

at::Tensor values_of(const fs::path& path, const FlatParameters& parameters) {
  const auto file = model::Safetensors::open(path, model::Safetensors::Access::kRead);
  if (file.tensors().size() != parameters.pieces().size()) {
    broken(path, "holds " + std::to_string(file.tensors().size()) + " tensors, expected " +
                     std::to_string(parameters.pieces().size()));
  }
  at::Tensor flat = at::zeros_like(parameters.values());
  for (const auto& piece : parameters.pieces()) {
    if (!file.has(piece.name)) broken(path, "lacks " + piece.name);
    const at::Tensor tensor = file.tensor(piece.name);
    if (tensor.sizes() != at::IntArrayRef(piece.shape) || tensor.scalar_type() != at::kFloat) {
      broken(path, piece.name + " has another shape or type than this job's");
    }
    model::require_finite(tensor, piece.name);
    FlatParameters::view(flat, piece).copy_(tensor);
  }
  return flat;
}

at::Tensor moment_of(const model::Safetensors& file, const fs::path& path, const std::string& name,
                     int64_t size) {
  if (!file.has(name)) broken(path, "lacks " + name);
  at::Tensor tensor = file.tensor(name);
  if (tensor.dim() != 1 || tensor.size(0) != size)
    broken(path, name + " has another size than this job's");
  model::require_finite(tensor, name);
  return tensor;
}

}  // namespace

LoadedCheckpoint load_checkpoint(const fs::path& directory, const std::string& manifest_sha256,
                                 const Identity& identity, const FlatParameters& parameters) try {
  const json manifest = read_manifest(directory, manifest_sha256);
  check_identity(directory, manifest.at("identity"), identity);
  check_files(directory, manifest);
  LoadedCheckpoint out;
  out.geometry = {manifest.at("micro_batch_size").get<int32_t>(),
                  manifest.at("threads").get<int32_t>(), manifest.value("gemm", Geometry{}.gemm),
                  manifest.value("ranks", Geometry{}.ranks)};
  out.optimizer_updates = manifest.at("optimizer_updates").get<int64_t>();
  out.state = state_from_json(read_text(directory / "state.json", kMaxStateBytes));
  out.values = values_of(directory / "adapter.safetensors", parameters);
  if (lists(manifest, kBestFile)) out.best_values = values_of(directory / kBestFile, parameters);
  const fs::path path = directory / "optimizer.safetensors";
  const auto file = model::Safetensors::open(path, model::Safetensors::Access::kRead);
  out.first_moment = moment_of(file, path, "first_moment", parameters.values().size(0));
  out.second_moment = moment_of(file, path, "second_moment", parameters.values().size(0));
  return out;
} catch (const Failure&) {
  throw;
} catch (const std::exception& error) {
  if (ending_of(error).exit == Exit::kOutOfMemory) throw;
  broken(directory, error.what());
}

std::optional<std::string> checkpoint_gemm(const fs::path& directory) {
  const auto text = base::read_file(directory / kManifest, kMaxManifestBytes);
  if (!text.ok()) return std::nullopt;
  const json manifest = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object()) return std::nullopt;
  const json found = manifest.value("gemm", json(Geometry{}.gemm));
  for (const kernels::Gemm known : {kernels::Gemm::kLibTorch, kernels::Gemm::kOpenBlas}) {
    if (found == kernels::name(known)) return kernels::name(known);
  }
  return std::nullopt;
}

int64_t checkpoint_bytes(const FlatParameters& parameters, bool keeps_best) {
  return (keeps_best ? 4 : 3) * 4 * parameters.values().size(0) + (1 << 20);
}

}  // namespace dex::train
