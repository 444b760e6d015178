#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "dex/internal/v1/frames.pb.h"
#include "dex/internal/v1/worker.pb.h"
#include "dex/v1/evaluation.pb.h"
#include "services/base/status.h"
#include "services/statistics/item_rows.h"
#include "worker/agent/data_paths.h"

// What an attempt keeps on the disk while the gates of its finished training are measured, so that
// a later attempt trains nothing again (jobs.md §7):
//
//   attempt-<epoch>/
//     final/                      the trainer's artefact
//     gates-<n>/ trained.json MANIFEST.json   n tasks are measured; what the job points to
//     gates/     step-<n>/ final/             the evaluator's own
//
// Everything blocks on the disk. Failures are those of errno_status.h (STORAGE_FULL), and
// ARTIFACT_CORRUPT for what is not what was kept.
namespace dex::agent {

namespace iv1 = dex::internal::v1;

// Of a job's checkpoint: whether it is one of these, and not the trainer's.
bool is_gate_checkpoint(const iv1::CheckpointRef& checkpoint);

// Writes gates-<n>/ below `attempt_dir`, n being the tasks that state.evaluation has. The answer is
// what the job shall point to; its step is the training's.
base::Result<iv1::CheckpointRef> keep_trained(const std::filesystem::path& attempt_dir,
                                              const iv1::TrainedState& state,
                                              const DataPaths& paths);

// Reads it back, and copies the artefact to final/ below `attempt_dir`, since an attempt publishes
// only what is its own; the state that comes back names the copy.
base::Result<iv1::TrainedState> take_up_trained(const iv1::CheckpointRef& checkpoint,
                                                const std::filesystem::path& attempt_dir,
                                                const DataPaths& paths);

// What an evaluator has published.
struct GateReport {
  dex::v1::EvaluationReport report;
  // Of each of its tasks; nothing where an older evaluator has kept none.
  std::vector<std::optional<statistics::TaskItems>> items;
};
// Reads it from the final/ of an evaluator, whose path may be absolute. Items only of tasks that
// `with_items` says, since they are large.
base::Result<GateReport> read_gate_report(const iv1::AttemptResult& evaluated,
                                          const std::vector<bool>& with_items,
                                          const DataPaths& paths);

}  // namespace dex::agent
