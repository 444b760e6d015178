// What a row's attention falls on (method.md §9.2), from the keys that forward.cc has just stored.
#include <algorithm>
#include <cmath>

#include "worker/serve/forward.h"

namespace dex::serve {
namespace {

using model::Attention;

// The branch of `adapter` whose difference is a constant weight on every token (method.md §3.1);
// nullptr: it has none, or λ is scaled to nothing.
const UnfoldedBranch* uniform_branch(const ServingAdapter* adapter, float lambda_scale) {
  if (adapter == nullptr || !adapter->branch || lambda_scale == 0) return nullptr;
  return adapter->branch->options.form == model::Form::kUniformMap ? &*adapter->branch : nullptr;
}

}  // namespace

bool Forward::has_signed_maps(const ServingAdapter* adapter, float lambda_scale) const {
  return config_.differential() || uniform_branch(adapter, lambda_scale) != nullptr;
}

void Forward::probe_rows(int64_t layer) {
  for (size_t row = 0; row < rows_.size(); ++row) {
    const AttentionProbe* probe = rows_[row].segment->probe;
    if (probe != nullptr && probe->position == rows_[row].position)
      probe_row(layer, static_cast<int64_t>(row));
  }
}

void Forward::probe_row(int64_t layer, int64_t row) {
  const AttentionProbe& probe = *rows_[row].segment->probe;
  if (layer == 0) std::ranges::fill(probe.shares, 0.0);
  const int64_t heads = config_.output_heads();
  const size_t parts = probe.shares.size();
  std::vector<double> of_heads(static_cast<size_t>(heads) * parts);
  threads_.run(static_cast<int>(heads), [&](int head, int) {
    double* sums = of_heads.data() + static_cast<size_t>(head) * parts;
    const std::vector<double> weights = map_row(layer, row, head);
    double total = 0;
    for (size_t t = 0; t < weights.size(); ++t) {
      sums[probe.parts[t]] += std::abs(weights[t]);
      total += std::abs(weights[t]);
    }
    for (size_t part = 0; part < parts; ++part) sums[part] /= total;
  });
  // In one order, whoever computed what.
  const double share = 1 / static_cast<double>(heads * config_.layers);
  for (size_t i = 0; i < of_heads.size(); ++i) probe.shares[i % parts] += share * of_heads[i];
}

std::vector<double> Forward::map_row(int64_t layer, int64_t row, int64_t head) const {
  if (!config_.differential()) {
    std::vector<double> map = softmax_row(layer, row, head);
    const Segment& segment = *rows_[row].segment;
    const UnfoldedBranch* uniform = uniform_branch(segment.adapter, segment.lambda_scale);
    if (uniform == nullptr || uniform->layers[layer].strength.empty()) return map;
    const LayerBranch& branch = uniform->layers[layer];
    const double constant = static_cast<double>(branch.strength[head]) * segment.lambda_scale *
                            branch.gate[head] / static_cast<double>(map.size());
    for (double& weight : map) weight += constant;
    return map;
  }
  // The two maps of a head lie as subtract() and subtract_wide() read them.
  const bool wide = config_.attention == Attention::kDiffLlama;
  std::vector<double> map = softmax_row(layer, row, wide ? head : 2 * head);
  const std::vector<double> second =
      softmax_row(layer, row, wide ? head + config_.heads / 2 : 2 * head + 1);
  const double lambda =
      lambda_.empty()
          ? static_cast<double>(model_.layers[layer].lambda)
          : 1 / (1 + std::exp(-static_cast<double>(lambda_[row * config_.heads + head])));
  for (size_t t = 0; t < map.size(); ++t) map[t] -= lambda * second[t];
  return map;
}

std::vector<double> Forward::softmax_row(int64_t layer, int64_t row, int64_t head) const {
  const int64_t d = config_.head_dim;
  const float* query = q_.data() + (row * config_.query_heads() + head) * d;
  const int64_t visible = rows_[row].position + 1;
  const int64_t hidden =
      config_.sliding_window == 0 ? 0 : std::max<int64_t>(0, visible - config_.sliding_window);
  return kernels::attention_weights({.layout = &pool_.layout(),
                                     .kv_head = key_head(head),
                                     .memory = pool_.block(layer, 0),
                                     .stride_bytes = pool_.stride_bytes(),
                                     .blocks = rows_[row].segment->blocks,
                                     .scale = 1.0F / std::sqrt(static_cast<float>(d)),
                                     .queries = {&query, 1},
                                     .visible = {&visible, 1},
                                     .hidden = {&hidden, 1}},
                                    0);
}

}  // namespace dex::serve
