#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "worker/model/adaptation.h"
#include "worker/model/config.h"

namespace dex::model {

// Names of an artefact's files that more than one writer needs.
inline constexpr const char* kProvenanceFile = "provenance.json";
inline constexpr const char* kChecksumFile = "checksums.json";

// The artefact of architecture.md §6, in memory: everything but whole checkpoints.
struct Adapter {
  // options, replaced projections, branches, masks and λ (fixed; learned = 0), ready for Llama and
  // fold.
  Adaptation adaptation;
  std::vector<std::vector<int64_t>> selected_heads;  // a list a layer, 0-based query heads
  std::vector<double> lambda;                        // the effective value a layer

  std::string base_model_name_or_path;
  std::string revision;
  std::string base_weights_sha256;
  std::string tokenizer_sha256;
  std::string chat_template_sha256;
  std::string job_id;
  std::string metrics = "{}";        // JSON object
  std::string branch_effect = "{}";  // JSON object
  at::ScalarType dtype =
      at::kFloat;  // of the stored projections and maps; gates and λ_learn are always fp32
};

// What an adapter must fit: the base's shape and hash.
struct BaseIdentity {
  const Config& config;
  std::string weights_sha256;
};

// Reads an adapter and checks all of it: checksums.json, every key of the config, exact tensor
// names and shapes, finite values and λ, heads in range, and that it was made for this base.
// Tensors are fp32 copies, or as stored. Throws "[adapter] <file>: <key> …, expected …, found …".
struct AdapterOptions {
  bool widen = true;  // to fp32; false: as stored
  // Takes a LoRA folder as PEFT wrote it as well: without checksums.json it names no base, so only
  // the shapes say whether it fits.
  bool peft_folder = false;
};
Adapter load_adapter(const std::filesystem::path& dir, const BaseIdentity& base,
                     const AdapterOptions& options = {});

// Writes `dir`, which must not exist, under a temporary name: tensors, adapter_config.json,
// checksums.json last; all synced, then renamed. λ is written with 17 digits. Plain LoRA is written
// in PEFT's layout, whose config has no room for our keys: they are in provenance.json beside it.
// Throws on I/O errors, and for weights of the whole base, which are a checkpoint (fold.h), and
// leaves nothing half done.
void write_adapter(const std::filesystem::path& dir, const Adapter& adapter);

// An adapter of the adaptation as it is now: λ published (method.md §1), masks as head lists (1,
// the others 0 or soft_floor). Hashes, names and reports are left for the caller. Throws when a
// mask is in between: a ramp of re-selection is never published.
Adapter make_adapter(const Adaptation& adaptation);

}  // namespace dex::model
