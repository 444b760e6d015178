#include "worker/serve/branch.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>

#include "worker/kernels/linear.h"

namespace dex::serve {
namespace {

using kernels::Store;
using kernels::WeightView;
using model::Activation;
using model::BottleneckScope;
using model::Form;
using model::Projection;

// How a projection's input and output are laid out over the heads (method.md §3.2).
enum class Scope { kShared, kPerHead, kDense };

Scope scope_of(const model::DexOptions& options) {
  if (options.projection == Projection::kBottleneck) {
    return options.bottleneck_scope == BottleneckScope::kDense     ? Scope::kDense
           : options.bottleneck_scope == BottleneckScope::kPerHead ? Scope::kPerHead
                                                                   : Scope::kShared;
  }
  return options.projection == Projection::kDense     ? Scope::kDense
         : options.projection == Projection::kPerHead ? Scope::kPerHead
                                                      : Scope::kShared;
}

// What a head's product reads and writes: rows of `columns` floats, of which a head has the share
// [h·width, (h+1)·width).
struct Side {
  float* data;
  int64_t columns, width;
};

// The head's part of `rows` rows of out = in·weightᵀ.
void head_product(const WeightView& weight, Scope scope, int64_t head, int64_t rows,
                  const float* in, int64_t in_columns, const Side& out) {
  const int64_t at = head * out.width;  // of the head in a row of `out`
  const float* x = scope == Scope::kDense ? in : in + head * weight.columns;
  const int64_t begin = scope == Scope::kShared ? 0 : at;
  float* y = scope == Scope::kShared ? out.data + at : out.data;
  kernels::linear_few(x, in_columns, rows, weight, begin, begin + out.width, y, out.columns,
                      Store::kSet);
}

void activate(Activation activation, float* x, int64_t count) {
  if (activation == Activation::kSilu) {
    for (int64_t i = 0; i < count; ++i) x[i] = x[i] / (1.0F + std::exp(-x[i]));
  } else if (activation == Activation::kGelu) {
    constexpr float kHalfRoot = 1.0F / std::numbers::sqrt2_v<float>;
    for (int64_t i = 0; i < count; ++i) x[i] *= 0.5F * (1.0F + std::erf(x[i] * kHalfRoot));
  }
}

bool has_bottleneck(const UnfoldedBranch& branch) {
  return branch.options.has_projection() && !branch.options.is_linear();
}

void check_state(const BranchSegment& segment) {
  if (!segment.branch->options.keeps_state()) return;
  const int32_t held = segment.state == nullptr ? -1 : segment.state->tokens;
  if (held >= 0 && (segment.position == 0 || held == segment.position)) return;
  throw std::runtime_error("[forward] a segment at position " + std::to_string(segment.position) +
                           " must come with the sums of as many tokens, got " +
                           (held < 0 ? "none" : "those of " + std::to_string(held)));
}

}  // namespace

BranchPass::BranchPass(const model::Config& config, kernels::ThreadPool& threads)
    : config_(config), threads_(threads) {}

void BranchPass::begin(std::span<const BranchSegment> segments) {
  for (const BranchSegment& segment : segments) check_state(segment);
  segments_.assign(segments.begin(), segments.end());
  groups_.clear();
  int64_t rows = 0;
  inner_columns_ = 0;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const BranchSegment& segment = segments_[i];
    if (segment.branch->options.keeps_state() && segment.position == 0) {
      segment.state->tokens = 0;
      segment.state->sums.assign(static_cast<size_t>(state_size(*segment.branch)), 0.0F);
    }
    rows = segment.row + segment.rows;
    inner_columns_ = std::max(inner_columns_, inner_width(*segment.branch));
    const bool neighbour = !groups_.empty() && groups_.back().branch == segment.branch &&
                           groups_.back().row + groups_.back().rows == segment.row;
    if (neighbour) {
      groups_.back().last = i + 1;
      groups_.back().rows += segment.rows;
    } else {
      groups_.push_back({segment.branch, i, i + 1, segment.row, segment.rows});
    }
  }
  const auto grow = [](std::vector<float>& buffer, int64_t size) {
    if (static_cast<int64_t>(buffer.size()) < size) buffer.resize(static_cast<size_t>(size));
  };
  grow(delta_, rows * config_.heads * config_.head_dim);
  grow(inner_, rows * inner_columns_);
}

// Floats of a sequence's sums.
int64_t BranchPass::state_size(const UnfoldedBranch& branch) const {
  const bool of_values = branch.options.form == Form::kUniformMap;
  return config_.layers * (of_values ? config_.kv_heads : config_.heads) * config_.head_dim;
}

// Floats a row of the middle of a bottleneck, all heads together.
int64_t BranchPass::inner_width(const UnfoldedBranch& branch) const {
  int64_t outputs = 0;
  for (const LayerBranch& layer : branch.layers) outputs = std::max(outputs, layer.down.rows);
  return scope_of(branch.options) == Scope::kShared ? outputs * config_.heads : outputs;
}

void BranchPass::finish() {
  for (const BranchSegment& segment : segments_) {
    if (segment.branch->options.keeps_state())
      segment.state->tokens += static_cast<int32_t>(segment.rows);
  }
  segments_.clear();
}

void BranchPass::apply(int64_t layer, float* o, const float* v) {
  const int64_t d = config_.head_dim, columns = config_.heads * d;
  shrink(layer, o);
  const auto groups = static_cast<int>(groups_.size());
  const auto kv_heads = static_cast<int>(config_.kv_heads);
  threads_.run(groups * kv_heads,
               [&](int i, int) { differences(groups_[i / kv_heads], layer, i % kv_heads, o, v); });
  // O is read by all of the above before it is changed here.
  for (const BranchSegment& segment : segments_) {
    const std::vector<float>& strengths = segment.branch->layers[layer].strength;
    for (size_t h = 0; h < strengths.size(); ++h) {
      if (strengths[h] == 0) continue;
      const float strength = strengths[h] * segment.lambda_scale;
      for (int64_t row = segment.row; row < segment.row + segment.rows; ++row) {
        const int64_t at = row * columns + static_cast<int64_t>(h) * d;
        for (int64_t c = 0; c < d; ++c) o[at + c] += strength * delta_[at + c];
      }
    }
  }
}

// The narrow side of activated bottlenecks, act(O·w_down), of all heads.
void BranchPass::shrink(int64_t layer, const float* o) {
  const int64_t d = config_.head_dim, columns = config_.heads * d;
  const auto heads = static_cast<int>(config_.heads);
  if (std::none_of(groups_.begin(), groups_.end(),
                   [](const Group& group) { return has_bottleneck(*group.branch); }))
    return;
  threads_.run(static_cast<int>(groups_.size()) * heads, [&](int i, int) {
    const Group& group = groups_[i / heads];
    const LayerBranch& branch = group.branch->layers[layer];
    if (!has_bottleneck(*group.branch) || branch.strength.empty()) return;
    const int64_t head = i % heads;
    const Scope scope = scope_of(group.branch->options);
    const float* in = o + group.row * columns;
    const int64_t width = inner_width(*group.branch);
    float* inner = inner_.data() + group.row * inner_columns_;
    // A head's share; a dense scope has one middle for all heads, and the tasks share it out.
    const int64_t begin = head * width / heads, end = (head + 1) * width / heads;
    if (scope == Scope::kDense) {
      kernels::linear_few(in, columns, group.rows, branch.down, begin, end, inner, inner_columns_,
                          Store::kSet);
    } else {
      head_product(branch.down, scope, head, group.rows, in, columns,
                   {inner, inner_columns_, width / heads});
    }
    for (int64_t row = 0; row < group.rows; ++row) {
      activate(group.branch->options.bottleneck_activation, inner + row * inner_columns_ + begin,
               end - begin);
    }
  });
}

// D of the query heads that read one key/value head, into delta_.
void BranchPass::differences(const Group& group, int64_t layer, int64_t kv_head, const float* o,
                             const float* v) {
  const LayerBranch& branch = group.branch->layers[layer];
  if (branch.strength.empty()) return;
  const Form form = group.branch->options.form;
  const int64_t d = config_.head_dim, per_kv = config_.heads_per_kv();
  const int64_t first = kv_head * per_kv;
  for (int64_t head = first; head < first + per_kv; ++head) {
    if (branch.strength[head] == 0) continue;
    if (group.branch->options.has_projection()) project(group, branch, head, o);
    if (form == Form::kHeadMean) subtract_head_mean(group, head, branch.gate[head], o);
    if (form == Form::kPrefixMean) {
      add_running_mean(
          group, branch, layer,
          {.first = head, .count = 1, .gate_sign = -1.0F, .source = head, .sources = config_.heads},
          o);
    }
  }
  if (form != Form::kUniformMap) return;
  for (int64_t row = group.row; row < group.row + group.rows; ++row) {
    std::fill_n(delta_.begin() + row * config_.heads * d + first * d, per_kv * d, 0.0F);
  }
  add_running_mean(group, branch, layer,
                   {.first = first,
                    .count = per_kv,
                    .gate_sign = 1.0F,
                    .source = kv_head,
                    .sources = config_.kv_heads},
                   v);
}

void BranchPass::project(const Group& group, const LayerBranch& branch, int64_t head,
                         const float* o) {
  const int64_t d = config_.head_dim, columns = config_.heads * d;
  const Scope scope = scope_of(group.branch->options);
  const Side out{delta_.data() + group.row * columns, columns, d};
  if (!has_bottleneck(*group.branch)) {
    return head_product(branch.map, scope, head, group.rows, o + group.row * columns, columns, out);
  }
  head_product(branch.up, scope, head, group.rows, inner_.data() + group.row * inner_columns_,
               inner_columns_, out);
}

void BranchPass::subtract_head_mean(const Group& group, int64_t head, float gate, const float* o) {
  const int64_t d = config_.head_dim, columns = config_.heads * d;
  for (int64_t row = group.row; row < group.row + group.rows; ++row) {
    float* out = delta_.data() + row * columns + head * d;
    for (int64_t c = 0; c < d; ++c) {
      float sum = 0;
      for (int64_t h = 0; h < config_.heads; ++h) sum += o[row * columns + h * d + c];
      out[c] -= gate * (sum / static_cast<float>(config_.heads));
    }
  }
}

void BranchPass::add_running_mean(const Group& group, const LayerBranch& branch, int64_t layer,
                                  const MeanOf& mean, const float* x) {
  const int64_t d = config_.head_dim, columns = config_.heads * d, width = mean.sources * d;
  for (size_t i = group.first; i < group.last; ++i) {
    const BranchSegment& segment = segments_[i];
    float* sum = segment.state->sums.data() + layer * width + mean.source * d;
    for (int64_t r = 0; r < segment.rows; ++r) {
      const int64_t row = segment.row + r;
      const float* in = x + row * width + mean.source * d;
      for (int64_t c = 0; c < d; ++c) sum[c] += in[c];
      const auto count = static_cast<float>(segment.position + r + 1);
      for (int64_t head = mean.first; head < mean.first + mean.count; ++head) {
        const float gate = mean.gate_sign * branch.gate[head];
        float* out = delta_.data() + row * columns + head * d;
        for (int64_t c = 0; c < d; ++c) out[c] += gate * (sum[c] / count);
      }
    }
  }
}

}  // namespace dex::serve
