// A job's frozen prefix: where its lowest layers are the base's, what they compute is taken from
// the cache.
#include <ATen/Parallel.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "services/base/sha256.h"
#include "services/base/version.h"
#include "worker/kernels/gemm.h"
#include "worker/train/job_run.h"

namespace dex::train::detail {

using nlohmann::json;

namespace {

// As the kernel names it; products pick their code by it.
std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 1);
  }
  return "";
}

// Who computed it, as far as that may change how it is rounded.
std::string this_computer() {
  return std::string(base::version()) + " " + std::string(base::commit()) + cpu_name() + ", " +
         std::to_string(at::get_num_threads()) + " threads, " +
         kernels::name(kernels::gemm_in_use());
}

}  // namespace

void Job::make_prefix() {
  const int64_t layers = frozen_layers(spec_);
  if (layers == 0) return;
  const auto config = base::sha256_file(spec_.model_dir / "config.json");
  if (!config.ok())
    throw Failure(Exit::kBrokenInput, "internal", config.status().message(), "model");
  std::unique_ptr<PrefixStore> store;
  if (!spec_.prefix_cache_dir.empty() && spec_.prefix_cache_bytes > 0) {
    store =
        std::make_unique<PrefixStore>(PrefixStore::Options{.directory = spec_.prefix_cache_dir,
                                                           .max_bytes = spec_.prefix_cache_bytes},
                                      clock_);
  }
  prefix_ = std::make_unique<DocumentPrefix>(
      *llama_,
      PrefixKey{identity_.base_weights_sha256, *config, layers, "float32", this_computer(),
                spec_.prefix_cache_owner},
      std::move(store));
}

std::vector<evaluate::SupervisedBatch> Job::in_batches(
    const std::vector<evaluate::Document>& documents) const {
  auto batches = evaluate::supervise_in_batches(documents, kEvaluationBatchTokens);
  for (evaluate::SupervisedBatch& each : batches) each.batch.prefix = prefix_.get();
  return batches;
}

void Job::report_prefix() {
  if (!prefix_ || prefix_->store() == nullptr) return;
  const PrefixStore& store = *prefix_->store();
  const PrefixStore::Counts& counts = store.counts();
  const json data = {{"layers", prefix_->layers()},
                     {"hits", std::to_string(counts.hits)},
                     {"misses", std::to_string(counts.misses)},
                     {"damaged", std::to_string(counts.damaged)},
                     {"readBytes", std::to_string(counts.read_bytes)},
                     {"writtenBytes", std::to_string(counts.written_bytes)},
                     {"dropped", std::to_string(counts.dropped)}};
  std::string text = "the lowest " + std::to_string(prefix_->layers()) +
                     " layers were read from the cache for " + std::to_string(counts.hits) +
                     " of " + std::to_string(counts.hits + counts.misses) + " rows";
  if (!store.full().empty()) text += "; it took no more: " + store.full();
  session_.event({Event::Level::kInfo, "prefix_cache", text, data.dump()});
  metrics_.line(json{{"prefixLayers", prefix_->layers()},
                     {"prefixHits", counts.hits},
                     {"prefixMisses", counts.misses},
                     {"prefixReadBytes", counts.read_bytes},
                     {"prefixWrittenBytes", counts.written_bytes}}
                    .dump());
}

}  // namespace dex::train::detail
