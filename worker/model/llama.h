#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "worker/model/adaptation.h"
#include "worker/model/config.h"
#include "worker/model/weights.h"

namespace dex::model {

struct Batch;

// What enters a layer below which nothing is trained and nothing changes: the same in every pass
// over the data, so whoever keeps it need not compute it again (performance.md §5).
class FrozenPrefix {
 public:
  virtual ~FrozenPrefix() = default;
  // How many layers it stands for, the lowest ones; 0: none.
  [[nodiscard]] virtual int64_t layers() const = 0;
  // The residual stream before layer layers(), [N, D], a fresh tensor without gradient.
  [[nodiscard]] virtual at::Tensor entering(const Batch& batch) const = 0;
};

// Packed rows: one or more documents one after another, without padding.
struct Batch {
  at::Tensor tokens;            // [N] int64
  at::Tensor positions;         // [N] int64; restarts at each document
  std::vector<int64_t> bounds;  // document i is rows bounds[i] … bounds[i+1]; first 0, last N
  std::optional<Noise> noise;   // of a training pass, for LoRA's dropout; else empty: nothing drops
  const FrozenPrefix* prefix = nullptr;  // not owned; null: every layer is computed
};
// Builds a Batch from documents of token ids; positions count from 0 in each.
Batch pack(const std::vector<std::vector<int64_t>>& documents);

// Ways to look into a forward pass; every member is optional. Functions get detached tensors and
// run on the calling thread, layer by layer.
struct Observer {
  // O [N, H, d] and s·λ·m·D [N, H, d] of a layer with a branch: branch_effect of method.md §2.6.
  std::function<void(int64_t layer, const at::Tensor& o, const at::Tensor& scaled_difference)>
      on_branch;
  // q [N, H, d] and k [N, K, d] as they meet (after RoPE), and o [N, H, d] as mixed, before any
  // branch: what attention maps and head features are made of (method.md §4.1, §4.3–§4.5). Where
  // maps are subtracted, q and k are those of both maps (Config::query_heads, key_heads) and o is
  // the difference of what they mix, [N, output_heads, output_width]; DiffLlama's after its head
  // norm and factor.
  std::function<void(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& o)>
      on_heads;
  // Of a layer that subtracts maps, before its on_heads: λ of the second map as it acts, with the
  // adaptation's mix in it; [1, 1], or [N, heads] where each token and head has its own.
  std::function<void(int64_t layer, const at::Tensor& share)> on_second_map;
  // ξ of method.md §4.2: [documents, output_heads] a layer, multiplied to the heads' outputs as
  // o_proj reads them: after the branch, and after DiffLlama's head norm, which would undo a gate
  // before it. Empty: none.
  std::vector<at::Tensor> head_gates;
};

// The forward pass of a decoder of any of families.h, differentiable in whatever tensor of the
// Adaptation requires a gradient (never in base weights that do not). Holds the base by reference:
// config and weights outlive it. Weights are fp32 (fp64 in tests). Thread-safe: a call keeps no
// state.
class Llama {
 public:
  Llama(const Config& config, const Weights& weights);

  // Hidden states after the last norm, [N, D]. λ = 0 or D = 0 everywhere gives the result without a
  // branch bit for bit. Throws "[llama] …" for token ids or positions out of range, and for a
  // batch with a frozen prefix where the adaptation changes something in its layers or the observer
  // wants to see their heads.
  at::Tensor hidden(const Batch& batch, const Adaptation& adaptation = {},
                    const Observer& observer = {}) const;

  // What enters `layer` of the base, [N, D]: what a frozen prefix of so many layers has to give.
  // Does not ask the batch's own.
  at::Tensor entering(int64_t layer, const Batch& batch) const;

  // hidden() in steps, for a backward pass that goes layer by layer and keeps only what lies
  // between the layers: the residual stream [N, D] before the first one, behind `layer`, and
  // hidden() of what is behind the last one. Same errors. The last two compute in the type of `x`:
  // where that is not the weights', the layer's own are converted for the call, so that an analysis
  // in fp64 over weights in fp32 costs one layer's copy.
  at::Tensor embedded(const Batch& batch, const Adaptation& adaptation) const;
  at::Tensor block(int64_t layer, const at::Tensor& x, const Batch& batch,
                   const Adaptation& adaptation, const Observer& observer) const;
  at::Tensor normed(const at::Tensor& x, const Adaptation& adaptation) const;

  // All logits [N, V]; for tests and short inputs.
  at::Tensor logits(const Batch& batch, const Adaptation& adaptation = {}) const;

  // The head of the adapted model: the base's, unless all weights are trained.
  [[nodiscard]] at::Tensor lm_head(const Adaptation& adaptation) const;
  [[nodiscard]] const Config& config() const { return config_; }

 private:
  // Throws for what hidden() refuses.
  void check_call(const Batch& batch, const Adaptation& adaptation) const;

  const Config& config_;
  const Weights& weights_;
};

}  // namespace dex::model
