#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "worker/model/dex_branch.h"
#include "worker/model/dex_options.h"
#include "worker/model/weights.h"

namespace dex::model {

// What changes one layer of a frozen base: replaced projections, a branch, its mask and its λ of
// this moment.
struct LayerAdaptation {
  at::Tensor k, v, o;                 // replace the base's; undefined: the base's
  at::Tensor k_bias, v_bias, o_bias;  // likewise, where the model has biases
  BranchTensors branch;               // empty with form none
  at::Tensor mask;     // [H] fp32 in [0, 1]; undefined or all 0: no branch in this layer
  LambdaTerms lambda;  // λ = fixed + learned·branch.lambda_learn
};

// A base model plus an Adaptation is an adapted model; an empty one (no layers) is the base itself.
// Plain data: the trainer owns one whose tensors are views of its flat buffers, an adapter that was
// read gives one.
struct Adaptation {
  DexOptions options;
  std::vector<LayerAdaptation> layers;
};

// The start of a job: fp32 copies of k, v, o (unless dex_only), initial branches, masks of the
// selected heads, λ at t = 0. No tensor requires a gradient yet.
Adaptation initial_adaptation(const DexOptions& options, const Config& config, const Weights& base,
                              const std::vector<std::vector<int64_t>>& selected_heads,
                              uint64_t seed);

// Sets every layer's λ to that of update t. Call it once before the forward passes of update u with
// t = u.
void set_lambda(Adaptation& adaptation, int64_t t);

// λ of each layer as a number, as it acts now.
std::vector<double> lambda_values(const Adaptation& adaptation);

// Which learning rate drives a tensor, method.md §2.3.
enum class Group { kBase, kBranch, kLambda };

// A trained tensor: its artefact key without the prefix ("model.layers.3.self_attn.dex.w_d") and
// the place in the Adaptation where the forward pass reads it. A trainer lays the values out in a
// flat buffer, in this order, and stores leaf views in their place:  *entry.tensor =
// flat.narrow(…).view(shape).detach().requires_grad_().
struct Trainable {
  std::string name;
  Group group = Group::kBase;
  at::Tensor* tensor = nullptr;  // not owned; valid while the Adaptation lives and keeps its layers
};

// The trained set of `options.train`, in the order of performance.md §5: K, V, O of every layer
// (biases after them) | w_d or w_down, w_up and gate of every layer | λ_learn of every layer.
// Branch tensors of layers with an all-zero mask are in it too, so that re-selection does not
// change the layout.
std::vector<Trainable> trainables(Adaptation& adaptation);

}  // namespace dex::model
