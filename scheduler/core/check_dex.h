#pragma once

#include <cstdint>
#include <optional>

#include "dex/v1/finetuning.pb.h"
#include "dex/v1/models.pb.h"
#include "scheduler/core/collector.h"

namespace dex::core {

// What a resolved dex method must be to train on `model` for `updates` updates (method.md §2.5,
// §3.6): values that its choices need, head lists, size of the projection, dead points, and unless
// it goes on from an adapter, its start. Without `updates` only what is dead however many there are
// is refused.
void check_dex(const dex::v1::DexMethod& dex, const dex::v1::Model& model, bool goes_on,
               std::optional<int64_t> updates, Collector& check);

}  // namespace dex::core
