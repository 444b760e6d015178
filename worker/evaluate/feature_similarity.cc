#include "worker/evaluate/feature_similarity.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <stdexcept>

#include "worker/evaluate/head_tables.h"

namespace dex::evaluate {
namespace {

// similarity[g, h] / √(similarity[g, g]·similarity[h, h]); NaN where a head's own is not positive.
at::Tensor normalized(const at::Tensor& similarity) {
  const at::Tensor own = similarity.diagonal();
  const at::Tensor root = at::where(own.gt(0), own, at::full_like(own, NAN)).sqrt();
  return similarity / at::outer(root, root);
}

}  // namespace

FeatureSimilarity::FeatureSimilarity(int64_t layers, int64_t heads, int64_t head_dim)
    : heads_(heads), head_dim_(head_dim) {
  const int64_t width = heads * head_dim;
  for (int64_t l = 0; l < layers; ++l) {
    layers_.push_back({at::zeros({width, width}, at::kDouble), at::zeros({width}, at::kDouble),
                       at::zeros({width, heads}, at::kDouble),
                       at::zeros({heads, heads}, at::kDouble)});
  }
}

void FeatureSimilarity::add(int64_t layer, const at::Tensor& o) {
  const at::NoGradGuard no_grad;
  Sums& sums = layers_[static_cast<size_t>(layer)];
  const at::Tensor by_head = o.to(at::kDouble);
  const at::Tensor rows = by_head.reshape({o.size(0), -1});
  const at::Tensor norms = by_head.square().sum(-1);  // [N, H]
  sums.products.addmm_(rows.t(), rows);
  sums.rows.add_(rows.sum(0));
  sums.rows_by_norm.addmm_(rows.t(), norms);
  sums.norm_products.addmm_(norms.t(), norms);
  sums.positions += o.size(0);
}

at::Tensor FeatureSimilarity::centred(const Sums& sums) {
  return sums.products - at::outer(sums.rows, sums.rows) / static_cast<double>(sums.positions);
}

at::Tensor FeatureSimilarity::biased(const Sums& sums) const {
  return normalized(centred(sums)
                        .view({heads_, head_dim_, heads_, head_dim_})
                        .square()
                        .sum({1, 3}));  // ‖X_gᵀX_h‖²
}

FeatureSimilarity::Moments FeatureSimilarity::moments(int64_t layer) const {
  const Sums& sums = layers_.at(static_cast<size_t>(layer));
  return {sums.rows.clone(), centred(sums)};
}

at::Tensor FeatureSimilarity::unbiased(const Sums& sums) const {
  const double n = static_cast<double>(sums.positions);
  if (sums.positions < 4) return at::full({heads_, heads_}, NAN, at::kDouble);
  const at::Tensor blocks = sums.products.view({heads_, head_dim_, heads_, head_dim_});
  const at::Tensor m = sums.rows.view({heads_, head_dim_});
  const at::Tensor trace = blocks.square().sum({1, 3}) - sums.norm_products;  // tr(KL)
  const at::Tensor norms = sums.products.diagonal().view({heads_, head_dim_}).sum(1);
  const at::Tensor total = m.square().sum(1) - norms;  // ΣK [H]
  // m_g·Σ x_g,i·‖x_h,i‖² of each pair [H, H].
  const at::Tensor cross =
      (sums.rows_by_norm.view({heads_, head_dim_, heads_}) * m.unsqueeze(-1)).sum(1);
  const at::Tensor weighted = (blocks * m.view({heads_, head_dim_, 1, 1})).sum(1);  // [H, H, d]
  const at::Tensor ones =
      (weighted * m.unsqueeze(0)).sum(-1) - cross - cross.t() + sums.norm_products;  // 1ᵀKL1
  const at::Tensor hsic =
      (trace + at::outer(total, total) / ((n - 1) * (n - 2)) - ones * (2 / (n - 2))) /
      (n * (n - 3));
  return normalized(hsic);
}

FeatureSimilarity::Result FeatureSimilarity::result() const {
  Result out;
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Sums& sums = layers_[l];
    if (sums.positions == 0)
      throw std::runtime_error("[feature_similarity] layer " + std::to_string(l) +
                               " has seen no token");
    out.pairs.push_back(table_of(biased(sums)));
    out.unbiased_pairs.push_back(table_of(unbiased(sums)));
    out.mean.push_back(pair_mean(out.pairs.back()));
    out.unbiased_mean.push_back(pair_mean(out.unbiased_pairs.back()));
    out.positions = sums.positions;
  }
  out.positions_per_dimension = static_cast<double>(out.positions) / static_cast<double>(head_dim_);
  return out;
}

}  // namespace dex::evaluate
