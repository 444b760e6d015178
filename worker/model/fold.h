#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>

#include "worker/model/adaptation.h"
#include "worker/model/adapter.h"
#include "worker/model/config.h"
#include "worker/model/weights.h"

namespace dex::model {

// All of this room's folding refuses what can't be folded (not_foldable) with "[fold] form
// prefix_mean keeps state between tokens; it can't be folded, serve it as an adapter".

// W_O with the layer's branch inside (method.md §2.4; head_mean: §3.1's full matrix): [D, H·d],
// computed in fp32 (fp64 if w_o is), the branch's λ multiplied by `lambda_scale`. `w_o` is the
// layer's effective o_proj: the adaptation's where it has one. A layer without a branch, or λ = 0,
// gives w_o in fp32, bit for bit.
at::Tensor folded_o_proj(const at::Tensor& w_o, const LayerAdaptation& layer,
                         const DexOptions& options, double lambda_scale = 1.0);

// The map M [H·d, H·d] with concat(O') = concat(O)·M, in simple ops. The oracle of folded_o_proj.
at::Tensor full_map(const LayerAdaptation& layer, const DexOptions& options, const Config& config);

// The base with the adaptation inside: weights replaced, LoRA merged (W + s·B·A, in fp32), the
// branch folded into o. Same tensors where nothing changed.
Weights folded_weights(const Weights& base, const Adaptation& adaptation);

// Largest |logit difference| of a fold in fp32 (method.md §2.4): what rounding explains, and what
// no rounding explains, so that the folded weights are not the branch (ours).
inline constexpr double kExactFold = 1e-4, kBrokenFold = 1e-2;

// How far two computations of the same logits are apart.
struct Certificate {
  double largest = 0;  // |logit difference|
  double mean = 0;
  // NaN is within no bound.
  [[nodiscard]] bool within_bound() const { return largest <= kExactFold; }
  [[nodiscard]] bool broken() const { return !(largest <= kBrokenFold); }
};
Certificate certificate(const at::Tensor& logits, const at::Tensor& reference);

// A type's name in config.json and in reports: "float32", "bfloat16", "float16"; others throw.
const char* torch_name(at::ScalarType type);

// Folded export of architecture.md §6: a plain Hugging Face checkpoint in `out`, which must not
// exist: weights in `dtype` in one file, everything else copied from `base_dir`, and
// fold_certificate.json, whose `within_bound` says whether rounding explains the difference.
// Written under a temporary name.
void export_folded(const std::filesystem::path& out, const std::filesystem::path& base_dir,
                   const Config& config, const Adaptation& adaptation, at::ScalarType dtype,
                   const Certificate& certificate);

// Weights that were made of another layout, as such a checkpoint, each tensor in the type that it
// has; conversion.json, text of JSON, says of which. `dtype` is what config.json says of them.
void export_converted(const std::filesystem::path& out, const std::filesystem::path& base_dir,
                      const Weights& weights, at::ScalarType dtype, const std::string& conversion);

// The artefact of a method that trains all weights (class MODEL), folded: the same kind of
// checkpoint, in the adapter's dtype, with provenance.json, and checksums.json of all files last.
// Serves as a base model by itself. Of method diff, `base` is that of add_second_map, and a mix
// below 1 is refused.
void write_checkpoint(const std::filesystem::path& out, const std::filesystem::path& base_dir,
                      const Weights& base, const Adapter& adapter);

}  // namespace dex::model
