#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace dex::model {

// Differential attention of the Differential Transformer (arXiv 2410.05258 and its V2 note), as
// method.md §8 states it. Both versions call plain softmax attention and subtract what it gives, so
// causality, documents and windows are the caller's.

// Softmax attention of query heads on key heads: q [T, heads, d] · k [T, key heads, d] · v [T, key
// heads, d_v] → [T, heads, d_v]; query head h reads key head h / (heads / key heads).
// kernels::causal_attention is one.
using Attend =
    std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)>;

// The four vectors [d] of a layer's λ.
struct LambdaVectors {
  at::Tensor q1, k1, q2, k2;
};
// λ = exp(q1·k1) − exp(q2·k2) + λ_init, without dimensions; products summed in fp32 (fp64 of fp64).
at::Tensor differential_lambda(const LambdaVectors& vectors, double lambda_init);

// Values of k heads that are 2d wide, as the two halves of their width: [T, k, d] each.
struct WideValues {
  at::Tensor low, high;
};

struct DifferentialV1 {
  at::Tensor lambda;       // of differential_lambda
  double lambda_init = 0;  // of the layer; the normed result is scaled by 1 − λ_init
  double eps = 1e-5;       // of the norm of each head
  at::Tensor gain = {};    // γ [2d] of that norm; undefined: 1, as in DiffLlama
};

// V1 of h heads, (softmax(Q1·K1ᵀ/√d) − λ·softmax(Q2·K2ᵀ/√d))·V, normed by RMSNorm over 2d and times
// 1 − λ_init: [T, h, 2d]. q [T, 2h, d] and k [T, 2k, d], rotated: pairs are heads i and i + h (keys
// j and j + k), DiffLlama's layout.
at::Tensor differential_v1(const at::Tensor& q, const at::Tensor& k, const WideValues& v,
                           const DifferentialV1& how, const Attend& attend);

// V2 of h heads: O1 − mix·sigmoid(logits)·O2, [T, h, d]. q [T, 2h, d], rotated: pairs are heads 2i
// and 2i + 1, which read the same of k, v [T, K, d], h % K = 0. `logits` [T, h] = X·W_λᵀ, one λ a
// token and head. Pairing across key heads would be unstable, so there is no other layout.
at::Tensor differential_v2(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& logits, const Attend& attend, double mix = 1);

// V1 as a second map beside a pretrained one (method.md §8.4), without V1's norm and factor, which
// would change the function: O1 − share·O2, [T, h, d]. q [T, 2h, d] and k [T, 2K, d], rotated:
// pairs are heads 2i and 2i + 1; v [T, K, d]. `share` without dimensions: mix·λ.
at::Tensor second_map_v1(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& share, const Attend& attend);

// The projections of a V1 layer: q [2h·d, D] · k [2k·d, D] · v [k·2d, D] · o [D, h·2d].
struct DifferentialProjections {
  at::Tensor q, k, v, o;
};

// The same layer from the layout of microsoft/unilm (pairs 2i, 2i + 1; V heads 2d wide; RoPE on
// neighbouring channels; a gain γ [2d] after the norm) in that of DiffLlama, where γ has gone into
// o. Exact but for the rounding of γ·o (method.md §8.2). `heads` h, `kv_heads` k. Throws
// "[from_unilm] …" for shapes that do not fit each other.
DifferentialProjections from_unilm(const DifferentialProjections& unilm, const at::Tensor& gain,
                                   int64_t heads, int64_t kv_heads);

// The way back, exact: DiffLlama's layout in unilm's, where the gain is 1, for γ stays in o. Throws
// "[to_unilm] …" likewise.
DifferentialProjections to_unilm(const DifferentialProjections& hf, int64_t heads,
                                 int64_t kv_heads);

}  // namespace dex::model
