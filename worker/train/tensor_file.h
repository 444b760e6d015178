#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "services/base/atomic_directory.h"

namespace dex::train {

// Adds a safetensors file to a directory that is being written, hashed on the way
// (model::write_safetensors renames by itself, so it can't be part of a larger atomic write).
// Tensors: fp32, contiguous, on the CPU; their order is kept.
base::Status write_tensors(base::AtomicDirectory& directory, const std::string& name,
                           const std::vector<std::pair<std::string, at::Tensor>>& tensors);

}  // namespace dex::train
