#pragma once

#include <optional>

#include "dex/internal/v1/worker.pb.h"
#include "worker/agent/data_paths.h"

namespace dex::agent {

namespace iv1 = dex::internal::v1;

// A trainer's checkpoint that is broken is no worker's fault, and no other worker would read it
// better. The newest one of the same attempt that was saved at an earlier step and has a manifest,
// with that manifest's hash; nothing: there is none. Whether its files are whole is for the trainer
// to find out. An attempt may otherwise use only what its job points to (jobs.md §4); what lies
// beside that was written by the same attempt of the same job, and each of its states leads to the
// same weights. Reads the disk.
std::optional<iv1::CheckpointRef> earlier_checkpoint(const iv1::CheckpointRef& broken,
                                                     const DataPaths& paths);

}  // namespace dex::agent
