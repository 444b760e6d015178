// A job that ends once its heads are chosen (PreviewHeadSelection): what it publishes in place of
// an adapter.
#include <nlohmann/json.hpp>

#include "services/base/atomic_directory.h"
#include "services/base/files.h"
#include "services/base/sha256.h"
#include "worker/train/disk_failure.h"
#include "worker/train/job_run.h"
#include "worker/train/selection_report.h"

namespace dex::train::detail {

using nlohmann::json;

Published Job::publish_heads() {
  select_heads();
  kernels::LinearCrossEntropy cross_entropy;
  const auto stability = selection_stability(spec_, *llama_, data_.train, cross_entropy,
                                             [this] { controls_.stop_here(); });
  json log = json::parse(selection_log_);
  log[0]["stability_ratio"] = stability ? json(*stability) : json(nullptr);

  enter(Phase::kFinalizing);
  const std::filesystem::path directory = spec_.attempt_dir / "final";
  throw_if_bad(base::remove_tree(directory));  // an attempt's directory used twice
  auto folder = base::AtomicDirectory::create(directory, files_);
  throw_if_bad(folder.status());
  throw_if_bad(folder->write("head_selection.json", log.dump()));
  throw_if_bad(folder->write("head_selection.svg", selection_picture(log.dump())));
  Published out;
  json checksums = json::object();
  for (const auto& entry : folder->entries()) {
    checksums[entry.name] = entry.sha256;
    out.bytes += entry.size_bytes;
  }
  const std::string manifest = checksums.dump(1) + "\n";
  throw_if_bad(folder->commit("checksums.json", manifest));
  out.path = directory.string();
  out.manifest_sha256 = base::sha256_hex(manifest);
  out.bytes += static_cast<int64_t>(manifest.size());
  return out;
}

}  // namespace dex::train::detail
