// What LoRA and bottleneck adapters add to a forward pass, group by group (method.md §7). Their
// products are thin: linear_few takes any number of rows through a weight that fits a cache, and a
// row's result then depends on the row alone, whatever its neighbours.
#include <algorithm>
#include <cmath>

#include "worker/serve/forward.h"

namespace dex::serve {
namespace {

using kernels::kNoBias;
using kernels::Store;

const BottleneckView* adapter_of(const ServingAdapter* adapter, int64_t layer,
                                 BottleneckView LayerOverride::*place) {
  if (adapter == nullptr) return nullptr;
  const BottleneckView& view = adapter->layers[static_cast<size_t>(layer)].*place;
  return view.down.data != nullptr ? &view : nullptr;
}

const LowRankView* term_of(const ServingAdapter* adapter, int64_t layer, model::Linear linear) {
  if (adapter == nullptr) return nullptr;
  const LowRankView& view = adapter->layers[static_cast<size_t>(layer)].term(linear);
  return view.a.data != nullptr ? &view : nullptr;
}

void activate(model::AdapterActivation activation, float* row, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float x = row[i];
    row[i] = activation == model::AdapterActivation::kRelu
                 ? std::max(x, 0.0F)
                 : 0.5F * x * (1.0F + std::erf(x * 0.70710678F));
  }
}

}  // namespace

bool Forward::has_term(int64_t layer, model::Linear linear) const {
  return std::ranges::any_of(groups_, [&](const Group& group) {
    return term_of(group.adapter, layer, linear) != nullptr;
  });
}

bool Forward::has_adapter(int64_t layer, BottleneckView LayerOverride::*place) const {
  return std::ranges::any_of(groups_, [&](const Group& group) {
    return adapter_of(group.adapter, layer, place) != nullptr;
  });
}

void Forward::add_terms(int64_t layer, model::Linear linear, float* out) {
  for (const Group& group : groups_) {
    const LowRankView* term = term_of(group.adapter, layer, linear);
    if (term == nullptr) continue;
    if (low_.size() <= after_.size()) low_.resize(after_.size() + 1);
    std::vector<float>& low = low_[after_.size()];
    low.resize(std::max<size_t>(low.size(), group.end * term->a.rows));
    add_job(group.begin, group.end, group.packed, term->a, kNoBias, low.data(), Store::kSet);
    after_.push_back({&term->b, &kNoBias, group.begin, group.end,
                      low.data() + group.begin * term->a.rows, out, Store::kAdd, Kernel::kFew});
  }
}

void Forward::set_aside(int64_t layer, BottleneckView LayerOverride::*place) {
  if (!has_adapter(layer, place)) return;
  aside_.resize(max_rows_ * config_.hidden_size);
  std::vector<Job> parts;
  for (const Job& job : jobs_) {
    for (const Group& group : groups_) {
      Job part = job;  // of kFew, which may run over many groups
      part.begin = std::max(job.begin, group.begin);
      part.end = std::min(job.end, group.end);
      if (part.begin >= part.end) continue;
      if (kernel_ == Kernel::kFew) part.in = in_ + part.begin * in_columns_;
      if (adapter_of(group.adapter, layer, place) != nullptr) {
        part.out = aside_.data();
        part.store = Store::kSet;
      }
      parts.push_back(part);
    }
  }
  jobs_.swap(parts);
}

void Forward::adapt(int64_t layer, BottleneckView LayerOverride::*place) {
  if (!has_adapter(layer, place)) return;
  const int64_t d = config_.hidden_size;
  for (const Group& group : groups_) {
    const BottleneckView* view = adapter_of(group.adapter, layer, place);
    if (view == nullptr) continue;
    const int64_t size = view->down.rows;
    narrow_.resize(std::max<size_t>(narrow_.size(), group.end * size));
    run_jobs({{&view->down, &view->down_bias, group.begin, group.end,
               aside_.data() + group.begin * d, narrow_.data(), Store::kSet, Kernel::kFew}});
    threads_.run(static_cast<int>(group.end - group.begin), [&](int i, int) {
      const int64_t row = group.begin + i;
      activate(group.adapter->activation, narrow_.data() + row * size, size);
      for (int64_t c = 0; c < d; ++c) x_[row * d + c] += aside_[row * d + c];
    });
    run_jobs({{&view->up, &view->up_bias, group.begin, group.end,
               narrow_.data() + group.begin * size, x_.data(), Store::kAdd, Kernel::kFew}});
  }
}

}  // namespace dex::serve
