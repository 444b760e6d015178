#pragma once

#include <string>

#include "dex/v1/models.pb.h"
#include "services/base/status.h"

namespace dex::core {

// What jobs of `method` (methods.h; empty: dex) on `model` may ask for and what they publish,
// without pools. INVALID_FIELD for a method that there is not; refused as a job would be where the
// model can't be adapted by it. Sizes are the estimate's, so exact; memory is its formula's.
base::Result<dex::v1::ModelLimits> model_limits(const dex::v1::Model& model,
                                                const std::string& method);

// Adds a pool whose largest worker has so many bytes, with the trains that fit there; 0, not known:
// all.
void add_pool(const std::string& name, int64_t memory_bytes, dex::v1::ModelLimits& limits);

}  // namespace dex::core
