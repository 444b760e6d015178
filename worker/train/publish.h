#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "worker/evaluate/supervised_batch.h"
#include "worker/model/adapter.h"
#include "worker/model/fold.h"
#include "worker/model/llama.h"
#include "worker/train/checkpoint.h"
#include "worker/train/report.h"
#include "worker/train/spec.h"

namespace dex::train {

// The trained state as an artefact in `directory`, which is replaced if it exists: λ and masks as
// they are set now. An adapter, or where all weights are trained a checkpoint. `metrics` is a JSON
// object. Throws Failure disk_full, quota_exceeded or internal.
void export_artefact(const std::filesystem::path& directory, const JobSpec& spec,
                     const Identity& identity, const model::Weights& base,
                     const model::Adaptation& adaptation, const std::string& metrics,
                     const evaluate::BranchEffect& effect);

struct Verification {
  model::Certificate read_back;  // loaded from its files against the trained state
  // Against folded weights (method.md §2.4); nothing for what can't be folded (method adapter,
  // diff, forms that keep state) and for full, which has nothing to fold.
  std::optional<model::Certificate> folded;
};
// Loads the artefact as serving would and compares the logits of `documents`, at least 64 rows of
// them. Throws Failure internal if what was written is not what was trained.
Verification verify_artefact(const std::filesystem::path& directory, const model::Llama& llama,
                             const model::Weights& base, const model::Adaptation& adaptation,
                             const Identity& identity,
                             const std::vector<evaluate::Document>& documents);

// SHA-256 of checksums.json and the bytes of all files.
struct ArtefactSize {
  std::string content_sha256;
  int64_t bytes = 0;
};
ArtefactSize artefact_size(const std::filesystem::path& directory);

}  // namespace dex::train
