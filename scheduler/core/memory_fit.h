#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "dex/v1/events.pb.h"
#include "dex/v1/finetuning.pb.h"
#include "dex/v1/models.pb.h"
#include "scheduler/core/estimate.h"
#include "scheduler/core/resolve.h"

namespace dex::core {

// What changes of a setting: path in the spec → value.
using SettingChanges = std::map<std::string, uint32_t>;

// The nearest setting that needs at most `bytes` of memory by the estimate: micro_batch_size is
// halved down to 1, which changes no update, then max_seq_length down to 16. `spec` is effective.
// Empty: the spec fits as it is, or nothing does.
SettingChanges nearest_fit(const dex::v1::FineTuningJobSpec& spec, const dex::v1::Model& model,
                           int64_t bytes);

// The same for a job that ran out of memory. Its process could have the peak and no more; and the
// estimate may be off, so that what is to fit must need less by it than what has failed, too.
SettingChanges nearest_fit(const dex::v1::FineTuningJobSpec& spec, const dex::v1::Model& model,
                           const dex::v1::OutOfMemory& failed);

// "micro_batch_size 1, max_seq_length 256".
std::string text_of(const SettingChanges& changes);

// An estimate where a worker has done one update: memory as measured, time from the measured speed
// and from the updates that the trainer counted with its tokenizer. Of a job that fits.
dex::v1::Estimate probed_estimate(const Resolved& resolved, const dex::v1::Model& model,
                                  const DeviceFacts& device, const dex::v1::MemoryProbe& probe);

}  // namespace dex::core
