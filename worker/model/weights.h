#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/model/config.h"

namespace dex::model {

// One decoder layer. A Linear weight is [out, in] as in torch; a bias or norm that the model lacks
// is undefined.
struct LayerWeights {
  at::Tensor input_norm;  // [D]
  at::Tensor q, k, v, o;  // [H·d, D] [K·d, D] [K·d, D] [D, H·d]; with a second map q
                          // and k have config.query_heads(), key_heads()
  at::Tensor q_bias, k_bias, v_bias;  // with qkv_bias
  at::Tensor o_bias;                  // [D], with o_bias
  at::Tensor q_norm, k_norm;          // [d] both, one for all heads; with qk_norm
  // λ of a differential model (differential_attention.h): [d] each of V1, [H, D] of V2.
  at::Tensor lambda_q1, lambda_k1, lambda_q2, lambda_k2;
  at::Tensor lambda_proj;
  at::Tensor post_norm;                      // [D], before the MLP
  at::Tensor gate, up, down;                 // [F, D] [F, D] [D, F]
  at::Tensor gate_bias, up_bias, down_bias;  // with mlp_bias
};

// A base model's weights: frozen, shared, never written to.
struct Weights {
  at::Tensor embed;  // [V, D]
  std::vector<LayerWeights> layers;
  at::Tensor norm;     // [D]
  at::Tensor lm_head;  // [V, D]; tied: the same tensor as embed
  // The files' bytes in memory, of which the tensors above are views unless they were copied; valid
  // as long as one of those views is.
  std::vector<std::span<const char>> mappings;
};

struct WeightOptions {
  // Nothing: as stored, views of the mapped files. Else every tensor is copied into this type (fp32
  // for training).
  std::optional<at::ScalarType> dtype;
  bool refuse_non_finite = false;  // scans every weight once
  // A DiffLlama whose attention is stored with unilm's names and in its layout (unilm.h); the gain
  // of the head norms goes into o (from_unilm), so give a dtype that can hold the product.
  bool unilm_attention = false;
};

// Loads the weights of `dir` and checks name and shape of each. Throws "[weights] …" naming what is
// missing, extra (rotary inv_freq buffers are ignored) or of another shape, with expected and
// found.
Weights load_weights(const std::filesystem::path& dir, const Config& config,
                     const WeightOptions& options = {});

// Gives the memory of one of the weights back where it lies in a mapped file, whole pages of it:
// for what somebody has copied. It is read from the file again when it is needed after all. Not
// mapped: nothing happens.
void drop_pages(const Weights& weights, const at::Tensor& tensor);

// `base_weights_sha256` of architecture.md §6. Reads all bytes (0.2 s for 270 MB).
std::string base_weights_sha256(const std::filesystem::path& dir);

// The tensors of one layer, defined or not, by their names below "model.layers.{i}.", in the order
// of a checkpoint: how code that treats all weights alike walks them. Pointers into `layer`.
std::vector<std::pair<std::string, at::Tensor*>> layer_places(LayerWeights& layer);

// Each weight by its Hugging Face name ("model.layers.0.self_attn.q_proj.weight"); a tied head is
// not listed.
std::vector<std::pair<std::string, at::Tensor>> named_weights(const Weights& weights);

}  // namespace dex::model
