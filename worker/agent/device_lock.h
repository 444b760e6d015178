#pragma once

#include <cstdint>
#include <filesystem>

#include "dex/internal/v1/worker.pb.h"

namespace dex::agent {

namespace iv1 = dex::internal::v1;

// The file whose lock a trainer holds as long as it lives, so that an orphan and its successor
// never share a device (jobs.md §4). A GPU has one for the whole machine, by its UUID, in /run/lock
// whatever worker uses it; of a CPU each slot of the worker has its own, in DATA_DIR/locks.
// `lock_dir`, unless empty, takes the place of both. Pure.
std::filesystem::path device_lock_file(const iv1::Device& device, uint32_t slot,
                                       const std::filesystem::path& data_dir,
                                       const std::filesystem::path& lock_dir);

}  // namespace dex::agent
