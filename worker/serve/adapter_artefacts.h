#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "worker/model/dex_options.h"

// Adapters that come in from elsewhere, and models that go out with an adapter inside, as jobs make
// both of them. Plain values: neither tensors nor messages here (performance.md §7).
namespace dex::serve {

// Why there is no artefact, and whose matter that is.
class ArtefactFailure : public std::runtime_error {
 public:
  enum class Kind {
    kAdapter,      // adapter_mismatch: the files of whoever uploaded them
    kNotFoldable,  // what the adapter is
    kBase,         // this worker's copy of the base model: another may do
    kDisk,         // try again
    kDiskFull,
    kQuota,  // of the tenant's files
  };
  ArtefactFailure(Kind kind, const std::string& message)
      : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

struct AdapterImportWork {
  std::filesystem::path model;  // the base's folder
  std::string model_name;       // its public name
  std::string weights_sha256;   // as the allow-list says; empty: that of the files
  std::filesystem::path uploaded;
  std::filesystem::path out;  // to be made
};

struct ImportedAdapter {
  model::DexOptions options;
  // Whether a job of these options could have made it. PEFT may give each linear another rank, or
  // leave layers out; a job can't.
  bool regular = true;
  std::vector<double> lambda;  // a layer; empty without a branch
  std::string base_weights_sha256, tokenizer_sha256, chat_template_sha256;
  std::string artifact_class;  // LIGHT, KVO
};

// Holds a folder of adapter_config.json and adapter_model.safetensors (ours, with checksums.json,
// or a LoRA as PEFT saved it) against the base, as serving does: every key, tensor, shape and
// value, and where it names them the base, tokenizer and chat template. Then makes `out`, an
// artefact like those of jobs: the same bytes; of PEFT's folder with provenance.json, which binds
// it to this base, and checksums.json. Throws ArtefactFailure; messages have file names, no paths.
ImportedAdapter import_adapter(const AdapterImportWork& work);

struct AdapterExportWork {
  std::filesystem::path model;
  std::string weights_sha256;
  std::filesystem::path adapter;
  std::string content_sha256;  // of its checksums.json
  std::string dtype;           // f32, bf16; empty: the base's
  std::filesystem::path out;
};

struct FoldedModel {
  std::string dtype;  // float32, bfloat16, float16
  std::string base_weights_sha256;
  double largest_logit_difference = 0, mean_logit_difference = 0;
  int64_t tokens = 0;
  bool within_bound = false;
};

// `dex-engine fold` (fold_command.h) as an artefact: with checksums.json, written last. Throws
// ArtefactFailure, of kind kNotFoldable before the base is read.
FoldedModel export_folded_adapter(const AdapterExportWork& work);

}  // namespace dex::serve
