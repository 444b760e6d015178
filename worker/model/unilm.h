#pragma once

#include <filesystem>
#include <string>

// The door for models whose attention is microsoft/unilm's Diff-Transformer V1 (method.md §8.2),
// which has modules and no format of a whole model. No tensor is in this header.
namespace dex::model {

// Writes the DiffLlama that is the same model to `out`, which must not exist. `source` has the
// config.json of that DiffLlama (heads are unilm's sub-heads: num_attention_heads = 2h,
// num_key_value_heads = 2k), and *.safetensors with transformers' names, but in each
// model.layers.{i}.self_attn unilm's own: q_proj, k_proj, v_proj, out_proj, lambda_q1, lambda_k1,
// lambda_q2, lambda_k2, subln.weight. Whatever else lies there is copied. Weights are computed in
// fp32 and each written in the type that it is stored in; `dtype` is the embedding's, which
// config.json then names. conversion.json keeps the source's hash.
//
// Returns {"folder", "dtype", "weights_sha256"} as one line of JSON, without its end. Throws
// std::runtime_error with a sentence for what can't be said in a DiffLlama, that is biases and an
// epsilon of the norms other than the 1e-5 of unilm's head norm, and for tensors that are missing,
// too many, misshapen or not finite; nothing is written then.
std::string convert_unilm(const std::filesystem::path& source, const std::filesystem::path& out);

}  // namespace dex::model
