#include "worker/evaluate/removed_directions.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>

namespace dex::evaluate {
namespace {

using RemovedRow = std::vector<std::optional<RemovedDirections>>;

bool has_directions(const model::Adaptation& adaptation) {
  const model::DexOptions& options = adaptation.options;
  return !adaptation.layers.empty() && options.is_linear() &&
         (options.form == model::Form::kPaper || options.form == model::Form::kHeadMean);
}

bool is_dense(const model::DexOptions& options) {
  return options.projection == model::Projection::kDense ||
         (options.projection == model::Projection::kBottleneck &&
          options.bottleneck_scope == model::BottleneckScope::kDense);
}

// One map over all heads: head h's output is its block of columns, so m_h is on those.
RemovedRow removed_of_all(const at::Tensor& map, const at::Tensor& mask, double strength) {
  if (mask.count_nonzero().item<int64_t>() == 0) return RemovedRow(1);
  const at::Tensor columns =
      mask.to(at::kDouble).repeat_interleave(map.size(0) / mask.size(0)).unsqueeze(0);
  return {removed_directions(map.to(at::kDouble) * columns, strength)};
}

// Heads of one map and one m_h have the same eigenvalues: they are taken once.
RemovedRow removed_of_heads(const at::Tensor& map, const at::Tensor& mask, double strength) {
  RemovedRow out;
  std::map<double, RemovedDirections> known;
  for (int64_t h = 0; h < mask.size(0); ++h) {
    const double m = mask[h].item<double>();
    if (m == 0) {
      out.emplace_back();
    } else if (map.dim() == 3) {
      out.emplace_back(removed_directions(map[h], strength * m));
    } else {
      const auto at = known.find(m);
      out.emplace_back(at != known.end()
                           ? at->second
                           : known.emplace(m, removed_directions(map, strength * m)).first->second);
    }
  }
  return out;
}

}  // namespace

RemovedDirections removed_directions(const at::Tensor& w_d, double strength) {
  const at::Tensor w = w_d.detach().to(at::kDouble);
  const at::Tensor map =
      at::eye(w.size(0), at::kDouble) + (w + w.t()) * (strength / 2);  // symmetric part
  const at::Tensor values = at::linalg_eigvalsh(map);
  return {values.lt(0).sum().item<int64_t>(), values.lt(0.5).sum().item<int64_t>()};
}

std::optional<RemovedTable> removed_by(const model::Adaptation& adaptation, int64_t heads) {
  if (!has_directions(adaptation)) return std::nullopt;
  const at::NoGradGuard no_grad;
  RemovedTable out;
  out.by_layer = is_dense(adaptation.options);
  const std::vector<double> lambda = model::lambda_values(adaptation);
  for (size_t l = 0; l < adaptation.layers.size(); ++l) {
    const model::LayerAdaptation& layer = adaptation.layers[l];
    const double strength = adaptation.options.sign_value() * lambda[l];
    // Below an adapter's first layer there is a mask of zeros and no branch.
    if (!layer.mask.defined() || layer.mask.count_nonzero().item<int64_t>() == 0) {
      out.layers.emplace_back(out.by_layer ? 1 : static_cast<size_t>(heads));
      continue;
    }
    const at::Tensor map = model::projection_map(layer.branch);
    out.layers.push_back(out.by_layer ? removed_of_all(map, layer.mask, strength)
                                      : removed_of_heads(map, layer.mask, strength));
  }
  return out;
}

}  // namespace dex::evaluate
