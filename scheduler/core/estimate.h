#pragma once

#include <cstdint>

#include "dex/v1/finetuning.pb.h"
#include "dex/v1/models.pb.h"
#include "scheduler/core/prices.h"
#include "scheduler/core/resolve.h"

namespace dex::core {

// What is known of the machines that may run the job.
struct DeviceFacts {
  // Sustained fp32 arithmetic of one worker: two cores with AVX2 gave 105 to 160 GFLOP/s in
  // training (performance.md §1).
  double flops_per_second = 120e9;
  int64_t memory_bytes = 0;  // 0: not known, then nothing is refused for its size
  Prices prices;
};

// Trained and added parameters of a spec on this model, exact (method.md §2.7). Biases included.
struct ParameterCount {
  int64_t trained = 0;
  int64_t added = 0;
};
ParameterCount count_parameters(const dex::v1::FineTuningJobSpec& spec,
                                const dex::v1::Model& model);

// Peak memory of the process that trains an effective spec, in bytes (performance.md §2).
int64_t peak_host_memory(const dex::v1::FineTuningJobSpec& spec, const dex::v1::Model& model);

// Arithmetic of one token that is trained on, forward and backward.
double flops_per_trained_token(const dex::v1::FineTuningJobSpec& spec, const dex::v1::Model& model);

// Time, memory and sizes by formula (performance.md §2, §3). The band is as wide as shared machines
// vary.
dex::v1::Estimate estimate(const Resolved& resolved, const dex::v1::Model& model,
                           const DeviceFacts& device);

}  // namespace dex::core
