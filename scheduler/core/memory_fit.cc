#include "scheduler/core/memory_fit.h"

#include <algorithm>

namespace dex::core {

namespace {

constexpr uint32_t kShortestSequence = 16;  // api.md §3, max_seq_length
constexpr const char* kMicroBatchPath = "hyperparameters.micro_batch_size";
constexpr const char* kSequencePath = "hyperparameters.max_seq_length";

}  // namespace

SettingChanges nearest_fit(const dex::v1::FineTuningJobSpec& spec, const dex::v1::Model& model,
                           int64_t bytes) {
  dex::v1::FineTuningJobSpec tried = spec;
  auto& hyper = *tried.mutable_hyperparameters();
  SettingChanges changes;
  while (peak_host_memory(tried, model) > bytes) {
    if (hyper.micro_batch_size() > 1) {
      hyper.set_micro_batch_size(hyper.micro_batch_size() / 2);
      changes[kMicroBatchPath] = hyper.micro_batch_size();
    } else if (hyper.max_seq_length() / 2 >= kShortestSequence) {
      hyper.set_max_seq_length(hyper.max_seq_length() / 2);
      changes[kSequencePath] = hyper.max_seq_length();
    } else {
      return {};
    }
  }
  return changes;
}

SettingChanges nearest_fit(const dex::v1::FineTuningJobSpec& spec, const dex::v1::Model& model,
                           const dex::v1::OutOfMemory& failed) {
  dex::v1::FineTuningJobSpec ran = spec;
  auto& hyper = *ran.mutable_hyperparameters();
  // As it ran: a second attempt has half the micro-batch that the spec says.
  if (failed.micro_batch_size() > 0) hyper.set_micro_batch_size(failed.micro_batch_size());
  if (failed.max_seq_length() > 0) hyper.set_max_seq_length(failed.max_seq_length());
  const int64_t needed = peak_host_memory(ran, model);
  return nearest_fit(ran, model, std::min(failed.peak_memory_bytes(), needed - 1));
}

std::string text_of(const SettingChanges& changes) {
  std::string text;
  for (const char* path : {kMicroBatchPath, kSequencePath}) {
    const auto found = changes.find(path);
    if (found == changes.end()) continue;
    const std::string name = found->first.substr(found->first.rfind('.') + 1);
    text += (text.empty() ? "" : ", ") + name + " " + std::to_string(found->second);
  }
  return text;
}

dex::v1::Estimate probed_estimate(const Resolved& resolved, const dex::v1::Model& model,
                                  const DeviceFacts& device, const dex::v1::MemoryProbe& probe) {
  DeviceFacts seen = device;
  if (probe.step_seconds() > 0 && probe.step_tokens() > 0) {
    seen.flops_per_second = flops_per_trained_token(resolved.config.spec(), model) *
                            static_cast<double>(probe.step_tokens()) / probe.step_seconds();
  }
  Resolved counted = resolved;
  if (probe.total_steps() > 0) counted.workload.updates = probe.total_steps();
  dex::v1::Estimate out = estimate(counted, model, seen);
  out.set_method(dex::v1::Estimate::METHOD_PROBE);
  out.set_peak_host_memory_bytes(probe.peak_memory_bytes());
  *out.mutable_probe() = probe;
  out.set_fits(true);
  out.set_allowed_to_proceed(true);
  out.clear_blockers();
  out.clear_nearest_fit();
  return out;
}

}  // namespace dex::core
