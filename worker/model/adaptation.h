#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "worker/model/bottleneck_adapter.h"
#include "worker/model/dex_branch.h"
#include "worker/model/dex_options.h"
#include "worker/model/lora.h"
#include "worker/model/weights.h"

namespace dex::model {

// What changes one layer of a frozen base. Its LayerWeights are replacements: a defined one (k, v,
// o and their biases, or with `full` all of them) stands in the base's place, an undefined one
// leaves the base's. The rest is added to the layer; undefined: not there.
struct LayerAdaptation : LayerWeights {
  BranchTensors branch;                              // empty with form none
  at::Tensor mask;                                   // [H] fp32 in [0, 1]; undefined or all 0: no
                                                     // branch in this layer
  LambdaTerms lambda;                                // λ = fixed + learned·branch.lambda_learn
  LoraTensors lora;                                  // beside any of the seven linears
  BottleneckAdapter attention_adapter, mlp_adapter;  // on the output of o_proj, of down_proj
};

// A base model plus an Adaptation is an adapted model; an empty one (no layers) is the base itself.
// Plain data: the trainer owns one whose tensors are views of its flat buffers, an adapter that was
// read gives one. Nobody who uses one asks which method made it: weights that are there replace,
// terms that are there act.
struct Adaptation {
  DexOptions options;
  std::vector<LayerAdaptation> layers;
  double mix = 1;  // of the second map, where the model has one (method.md §8.4): 0 … 1
  at::Tensor embed, norm, lm_head;  // replacements, as in Weights; with a tied head `lm_head` stays
                                    // undefined and `embed` is both
};

// The base with every replacement in its place: the same tensors, nothing is copied. What is added
// (branch, LoRA, adapters) is not in it; folded_weights (fold.h) has that too.
Weights replaced_weights(const Weights& base, const Adaptation& adaptation);

// The start of a job on `base` (method diff: of add_second_map): fp32 copies of the weights that
// `options.train` trains, initial branches, LoRA terms and adapters, masks of the selected heads, λ
// at t = 0. No tensor requires a gradient yet. Layers below options.first_layer have none of it.
Adaptation initial_adaptation(const DexOptions& options, const Config& config, const Weights& base,
                              const std::vector<std::vector<int64_t>>& selected_heads,
                              uint64_t seed);

// Sets every layer's λ, and the mix of a second map, to that of update t. Call it once before the
// forward passes of update u with t = u.
void set_lambda(Adaptation& adaptation, int64_t t);

// m_h of a layer's heads (head_mask): all 0 below options.first_layer, where no floor acts either.
at::Tensor layer_mask(const DexOptions& options, const Config& config, int64_t layer,
                      const std::vector<int64_t>& selected_heads);

// The lowest layer that the adaptation changes anything in, as it is now: what enters it is the
// base's, whatever is trained. 0 where the embedding is replaced; the number of its layers for an
// adaptation that changes none.
int64_t first_changed_layer(const Adaptation& adaptation);

// λ of each layer as a number, as it acts now.
std::vector<double> lambda_values(const Adaptation& adaptation);

// Which learning rate drives a tensor (method.md §2.3), and what it counts as: weights of the base,
// LoRA and adapter tensors (their rate is the base's), branch, λ_learn.
enum class Group { kBase, kAdded, kBranch, kLambda };
inline constexpr size_t kGroups = 4;

// A trained tensor: its artefact key without the prefix ("model.layers.3.self_attn.dex.w_d") and
// the place in the Adaptation where the forward pass reads it. A trainer lays the values out in a
// flat buffer, in this order, and stores leaf views in their place:  *entry.tensor =
// flat.narrow(…).view(shape).detach().requires_grad_().
struct Trainable {
  std::string name;
  Group group = Group::kBase;
  at::Tensor* tensor = nullptr;  // not owned; valid while the Adaptation lives and keeps its layers
};

// Every tensor that the adaptation has, in the order of performance.md §5: replaced weights of
// every layer in a checkpoint's order (K, V, O, then their biases) | LoRA and adapters of every
// layer | w_d or w_down, w_up and gate of every layer | λ_learn of every layer. Branch tensors of
// layers with an all-zero mask are in it too, so that re-selection does not change the layout.
std::vector<Trainable> trainables(Adaptation& adaptation);

}  // namespace dex::model
