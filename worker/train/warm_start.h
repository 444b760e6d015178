#pragma once

#include "worker/model/adapter.h"
#include "worker/train/spec.h"

namespace dex::train {

// Going on from a published adapter (api.md §3, `model`): its weights, heads and λ are the start of
// the job; optimizer, schedules and data order begin anew.

// Reads `spec.start_adapter_dir` and holds it against the job. Throws Failure (kBadSpec,
// adapter_mismatch) for damaged or other files than `start_adapter_sha256` says, for another base,
// and for a spec that asks for something else than the adapter is, naming the field.
model::Adapter load_start(const JobSpec& spec, const model::Config& config,
                          const std::string& base_weights_sha256);

// Copies the adapter's values over those of a fresh start of the same options. λ_learn is what λ
// acts with, so that the first forward pass is the adapter's (method.md §2.2 with T = 0).
void take_values(const model::Adapter& from, model::Adaptation& to);

}  // namespace dex::train
