#include "worker/model/differential_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sigmoid.h>

#include "worker/kernels/check.h"
#include "worker/kernels/rms_norm.h"

namespace dex::model {

namespace {

using at::Tensor;
using kernels::check;

Tensor exp_of_product(const Tensor& a, const Tensor& b) {
  const auto type = a.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return (a.to(type) * b.to(type)).sum().exp();
}

// Heads' rows [n·d, D] with n = `heads` pairs: pair 2i + p → p·heads + i, and in each head the
// channels that RoPE turns together (2c, 2c + 1) → (c, c + d/2).
Tensor paired_rows(const Tensor& weight, int64_t heads) {
  const int64_t d = weight.size(0) / (2 * heads), width = weight.size(1);
  return weight.reshape({heads, 2, d / 2, 2, width})
      .permute({1, 0, 3, 2, 4})
      .reshape({2 * heads * d, width});
}

// The inverse: head p·heads + i → pair 2i + p, channels (c, c + d/2) → (2c, 2c + 1).
Tensor neighbouring_rows(const Tensor& weight, int64_t heads) {
  const int64_t d = weight.size(0) / (2 * heads), width = weight.size(1);
  return weight.reshape({2, heads, 2, d / 2, width})
      .permute({1, 0, 3, 2, 4})
      .reshape({2 * heads * d, width});
}

}  // namespace

Tensor differential_lambda(const LambdaVectors& vectors, double lambda_init) {
  return exp_of_product(vectors.q1, vectors.k1) - exp_of_product(vectors.q2, vectors.k2) +
         lambda_init;
}

Tensor differential_v1(const Tensor& q, const Tensor& k, const WideValues& v,
                       const DifferentialV1& how, const Attend& attend) {
  const int64_t rows = q.size(0), heads = q.size(1) / 2, width = 2 * q.size(2);
  // Both maps of a pair mix the same values: key heads j and j + k.
  const Tensor values = at::cat({v.low, v.high}, -1);              // [T, k, 2d]
  const Tensor wide = attend(q, k, at::cat({values, values}, 1));  // [T, 2h, 2d]
  const Tensor o = wide.narrow(1, 0, heads) - how.lambda * wide.narrow(1, heads, heads);
  const double scale = 1 - how.lambda_init;
  const Tensor weight =
      how.gain.defined() ? how.gain * scale : at::full({width}, scale, o.options());
  return kernels::rms_norm(o.reshape({-1, width}), weight, how.eps).view({rows, heads, width});
}

Tensor differential_v2(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& logits,
                       const Attend& attend, double mix) {
  const Tensor o = attend(q, k, v).unflatten(1, {q.size(1) / 2, 2});  // [T, h, 2, d]
  return o.select(2, 0) - (mix * at::sigmoid(logits)).unsqueeze(-1) * o.select(2, 1);
}

Tensor second_map_v1(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& share,
                     const Attend& attend) {
  const Tensor queries = q.unflatten(1, {q.size(1) / 2, 2}),
               keys = k.unflatten(1, {k.size(1) / 2, 2});
  return attend(queries.select(2, 0), keys.select(2, 0), v) -
         share * attend(queries.select(2, 1), keys.select(2, 1), v);
}

DifferentialProjections from_unilm(const DifferentialProjections& unilm, const Tensor& gain,
                                   int64_t heads, int64_t kv_heads) {
  const int64_t width = gain.size(0), d = width / 2, hidden = unilm.q.size(1);
  check(gain.dim() == 1 && d % 2 == 0, "from_unilm", "gain must be [2d] with an even d", gain);
  check(unilm.q.size(0) == heads * width, "from_unilm", "q must be [2h·d, D]", unilm.q);
  check(unilm.k.size(0) == kv_heads * width, "from_unilm", "k must be [2k·d, D]", unilm.k);
  check(unilm.v.sizes() == unilm.k.sizes(), "from_unilm", "v must be [k·2d, D]", unilm.v);
  check(unilm.o.size(1) == heads * width, "from_unilm", "o must be [D, h·2d]", unilm.o);
  const Tensor v = unilm.v.reshape({kv_heads, 2, d, hidden}).transpose(0, 1);
  return {paired_rows(unilm.q, heads), paired_rows(unilm.k, kv_heads),
          v.reshape({kv_heads * width, hidden}), unilm.o * gain.repeat({heads})};
}

DifferentialProjections to_unilm(const DifferentialProjections& hf, int64_t heads,
                                 int64_t kv_heads) {
  const int64_t width = hf.o.size(1) / heads, d = width / 2, hidden = hf.q.size(1);
  check(hf.o.size(1) == heads * width && width % 4 == 0, "to_unilm",
        "o must be [D, h·2d] with an even d", hf.o);
  check(hf.q.size(0) == heads * width, "to_unilm", "q must be [2h·d, D]", hf.q);
  check(hf.k.size(0) == kv_heads * width, "to_unilm", "k must be [2k·d, D]", hf.k);
  check(hf.v.sizes() == hf.k.sizes(), "to_unilm", "v must be [2k·d, D]", hf.v);
  const Tensor v = hf.v.reshape({2, kv_heads, d, hidden}).transpose(0, 1);
  return {neighbouring_rows(hf.q, heads), neighbouring_rows(hf.k, kv_heads),
          v.reshape({kv_heads * width, hidden}), hf.o};
}

}  // namespace dex::model
