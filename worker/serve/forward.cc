#include "worker/serve/forward.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "worker/kernels/row_ops.h"

namespace dex::serve {
namespace {

using kernels::kNoBias;
using kernels::kTileRows;
using kernels::Store;
using model::Linear;

// Below this a region costs more than it gains.
constexpr int64_t kRowsWorthSharing = 8;
// Outputs of a slice: a multiple of every block that the kernels work in, but for panels.
constexpr int64_t kSliceOutputs = 48;

int64_t round_up(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("[forward] " + what);
}

}  // namespace

Forward::Forward(const ServingModel& model, KvPool& pool, kernels::ThreadPool& threads,
                 int64_t max_rows)
    : model_(model),
      config_(model.config),
      pool_(pool),
      threads_(threads),
      max_rows_(max_rows),
      branches_(model.config, threads),
      ranges_(static_cast<size_t>(threads.threads())) {
  const int64_t width = config_.heads * config_.head_dim,
                key_width = config_.key_heads() * config_.head_dim,
                value_width = config_.kv_heads * config_.head_dim;
  const int64_t widest = std::max({config_.hidden_size, width, config_.intermediate_size});
  for (auto* buffer : {&x_, &normed_}) buffer->resize(max_rows * config_.hidden_size);
  q_.resize(max_rows * config_.query_heads() * config_.head_dim);
  o_.resize(max_rows * width);
  if (config_.differential()) maps_.resize(max_rows * 2 * width);
  if (config_.attention == model::Attention::kSecondMapV2) lambda_.resize(max_rows * config_.heads);
  k_.resize(max_rows * key_width);
  v_.resize(max_rows * value_width);
  for (auto* buffer : {&gate_, &up_}) buffer->resize(max_rows * config_.intermediate_size);
  for (int i = 0; i < threads.threads(); ++i) {
    scratch_.emplace_back(
        std::max(kernels::linear_scratch(widest), kernels::panel_scratch(widest)));
    attention_.emplace_back(pool.layout());
  }
  largest_logits_.resize(static_cast<size_t>(threads.threads()));
}

void Forward::run(std::span<const Segment> segments, Kernel kernel) {
  check(segments);
  begin_branches(segments);
  kernel_ = kernel;
  place(segments);
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    const LayerView& w = model_.layers[layer];
    normalise(w.input_norm);
    prepare(normed_.data(), config_.hidden_size);
    add(w.q, w.q_bias, q_.data(), Store::kSet);
    add_changed(layer, &LayerView::k, &LayerOverride::k, &LayerView::k_bias, &LayerOverride::k_bias,
                k_.data(), Store::kSet);
    add_changed(layer, &LayerView::v, &LayerOverride::v, &LayerView::v_bias, &LayerOverride::v_bias,
                v_.data(), Store::kSet);
    add_terms(layer, Linear::kQ, q_.data());
    add_terms(layer, Linear::kK, k_.data());
    add_terms(layer, Linear::kV, v_.data());
    if (w.lambda_proj.data != nullptr) add(w.lambda_proj, kNoBias, lambda_.data(), Store::kSet);
    multiply();

    // A DiffLlama's head mixes the values of other key heads too: all are stored first.
    const bool wide = config_.attention == model::Attention::kDiffLlama;
    kernel == Kernel::kFew && !wide ? attend_few(layer) : attend_many(layer);
    if (config_.differential()) {
      threads_.run(static_cast<int>(rows_.size()), [&](int row, int) { subtract(w, row); });
    }
    probe_rows(layer);
    if (!branches_.empty()) branches_.apply(layer, o_.data(), v_.data());

    prepare(o_.data(), config_.heads * config_.head_dim);
    add_changed(layer, &LayerView::o, &LayerOverride::o, &LayerView::o_bias, &LayerOverride::o_bias,
                x_.data(), Store::kAdd);
    set_aside(layer, &LayerOverride::attention_adapter);
    add_terms(layer, Linear::kO, x_.data());
    multiply();
    adapt(layer, &LayerOverride::attention_adapter);

    normalise(w.post_norm);
    prepare(normed_.data(), config_.hidden_size);
    add(w.gate, w.gate_bias, gate_.data(), Store::kSet);
    const bool terms = has_term(layer, Linear::kGate) || has_term(layer, Linear::kUp);
    for (Job& job : jobs_) {
      if (terms) break;  // they come between the products and silu
      job.up = &w.up;
      job.up_bias = &w.up_bias;
    }
    if (terms) {
      add(w.up, w.up_bias, up_.data(), Store::kSet);
      add_terms(layer, Linear::kGate, gate_.data());
      add_terms(layer, Linear::kUp, up_.data());
    }
    multiply();
    if (terms) {
      const int64_t F = config_.intermediate_size;
      threads_.run(static_cast<int>(rows_.size()), [&](int row, int) {
        kernels::silu_mul(gate_.data() + row * F, up_.data() + row * F, F);
      });
    }

    prepare(gate_.data(), config_.intermediate_size);
    add(w.down, w.down_bias, x_.data(), Store::kAdd);
    set_aside(layer, &LayerOverride::mlp_adapter);
    add_terms(layer, Linear::kDown, x_.data());
    multiply();
    adapt(layer, &LayerOverride::mlp_adapter);
    note_hidden();
  }
  branches_.finish();
  note_run();
}

void Forward::begin_branches(std::span<const Segment> segments) {
  branch_segments_.clear();
  int64_t row = 0;
  for (const Segment& segment : segments) {
    const auto rows = static_cast<int64_t>(segment.tokens.size());
    if (segment.adapter != nullptr && segment.adapter->branch && segment.lambda_scale != 0) {
      branch_segments_.push_back({.branch = &*segment.adapter->branch,
                                  .state = segment.branch_state,
                                  .position = segment.first,
                                  .row = row,
                                  .rows = rows,
                                  .lambda_scale = segment.lambda_scale});
    }
    row += rows;
  }
  branches_.begin(branch_segments_);
}

void Forward::logits(std::span<const int32_t> rows, Kernel kernel, float* out) {
  const int64_t d = config_.hidden_size, count = static_cast<int64_t>(rows.size());
  if (count == 0) return;
  kernel_ = kernel;
  // The last norm of only these rows, gathered; the groups shrink to one of them all.
  for (int64_t i = 0; i < count; ++i) {
    kernels::rms_norm_row(x_.data() + rows[i] * d, model_.norm,
                          static_cast<float>(config_.rms_norm_eps), normed_.data() + i * d);
  }
  groups_.assign(1, {nullptr, 0, count, 0});
  prepare(normed_.data(), d);
  add(model_.lm_head, kNoBias, out, Store::kSet);
  multiply();
}

void Forward::check(std::span<const Segment> segments) const {
  int64_t rows = 0;
  for (const Segment& segment : segments) {
    rows += static_cast<int64_t>(segment.tokens.size());
    const int64_t end = segment.first + static_cast<int64_t>(segment.tokens.size());
    if (segment.first < 0 || end > config_.max_position_embeddings) {
      fail("positions must be below " + std::to_string(config_.max_position_embeddings) + ", got " +
           std::to_string(end - 1));
    }
    if (static_cast<int64_t>(segment.blocks.size()) * kernels::kBlockTokens < end) {
      fail("blocks must hold " + std::to_string(end) + " tokens, got " +
           std::to_string(segment.blocks.size()) + " blocks");
    }
    for (const int32_t token : segment.tokens) {
      if (token < 0 || token >= config_.vocab_size) {
        fail("token ids must be below " + std::to_string(config_.vocab_size) + ", got " +
             std::to_string(token));
      }
    }
  }
  if (rows > max_rows_)
    fail("at most " + std::to_string(max_rows_) + " rows, got " + std::to_string(rows));
}

void Forward::place(std::span<const Segment> segments) {
  rows_.clear();
  groups_.clear();
  tiles_.clear();
  const int64_t tile_rows = std::max<int64_t>(1, kernels::kMostQueries / config_.heads_per_kv());
  int64_t packed = 0;
  for (const Segment& segment : segments) {
    const auto first = static_cast<int64_t>(rows_.size()),
               count = static_cast<int64_t>(segment.tokens.size());
    for (int64_t i = 0; i < count; ++i) {
      kernels::widen_row(model_.embed, segment.tokens[i],
                         x_.data() + (first + i) * config_.hidden_size);
      rows_.push_back({&segment, static_cast<int32_t>(segment.first + i)});
    }
    for (int64_t i = 0; i < count; i += tile_rows)
      tiles_.emplace_back(first + i, std::min(tile_rows, count - i));
    if (!groups_.empty() && groups_.back().adapter == segment.adapter) {
      groups_.back().end += count;
    } else {
      if (!groups_.empty())
        packed += round_up(groups_.back().end - groups_.back().begin, kTileRows);
      groups_.push_back({segment.adapter, first, first + count, packed});
    }
  }
}

void Forward::normalise(const WeightView& weight) {
  const int64_t d = config_.hidden_size;
  const auto one = [&](int row, int) {
    kernels::rms_norm_row(x_.data() + row * d, weight, static_cast<float>(config_.rms_norm_eps),
                          normed_.data() + row * d);
  };
  const auto rows = static_cast<int>(rows_.size());
  if (rows >= kRowsWorthSharing) {
    threads_.run(rows, one);
  } else {
    for (int row = 0; row < rows; ++row) one(row, 0);
  }
}

void Forward::prepare(const float* in, int64_t columns) {
  jobs_.clear();
  after_.clear();
  in_ = in;
  in_columns_ = columns;
  if (kernel_ == Kernel::kFew) return;
  // Room for pack(), since jobs point into it.
  const int64_t size = packed_tiles() * kTileRows * columns;
  if (static_cast<int64_t>(packed_.size()) < size) packed_.resize(size);
}

int64_t Forward::packed_tiles() const {
  const Group& last = groups_.back();
  return (last.packed + round_up(last.end - last.begin, kTileRows)) / kTileRows;
}

void Forward::pack() {
  const int64_t tiles = packed_tiles(), columns = in_columns_;
  const float* in = in_;
  threads_.run(static_cast<int>(tiles), [&](int tile, int) {
    const auto group = std::ranges::find_if(groups_.rbegin(), groups_.rend(), [&](const Group& g) {
      return g.packed <= tile * kTileRows;
    });
    const int64_t local = tile - group->packed / kTileRows;
    kernels::pack_rows(in + group->begin * columns, columns, group->end - group->begin, columns,
                       local, local + 1, packed_.data() + group->packed * columns);
  });
}

void Forward::quantize() {
  const int64_t groups = kernels::int4_groups(in_columns_);
  const auto rows = static_cast<int>(groups_.back().end);
  if (static_cast<int64_t>(quantized_.size()) < rows * groups) quantized_.resize(rows * groups);
  const auto one = [&](int row, int) {
    kernels::quantize_activations(in_ + row * in_columns_, in_columns_,
                                  quantized_.data() + row * groups);
  };
  if (rows >= kRowsWorthSharing) {
    threads_.run(rows, one);
  } else {
    for (int row = 0; row < rows; ++row) one(row, 0);
  }
}

void Forward::add(const WeightView& weight, const WeightView& bias, float* out, Store store) {
  if (kernel_ == Kernel::kFew) {
    add_job(0, groups_.back().end, 0, weight, bias, out, store);
  } else {
    for (const Group& group : groups_)
      add_job(group.begin, group.end, group.packed, weight, bias, out, store);
  }
}

void Forward::add_changed(int64_t layer, WeightView LayerView::*weight,
                          WeightView LayerOverride::*change, WeightView LayerView::*bias,
                          WeightView LayerOverride::*bias_change, float* out, Store store) {
  for (const Group& group : groups_) {
    const WeightView* w = &(model_.layers[layer].*weight);
    const WeightView* b = &(model_.layers[layer].*bias);
    if (group.adapter != nullptr) {
      const LayerOverride& changed = group.adapter->layers[layer];
      if ((changed.*change).data != nullptr) w = &(changed.*change);
      if ((changed.*bias_change).data != nullptr) b = &(changed.*bias_change);
    }
    add_job(group.begin, group.end, group.packed, *w, *b, out, store);
  }
}

void Forward::add_job(int64_t begin, int64_t end, int64_t packed, const WeightView& weight,
                      const WeightView& bias, float* out, Store store) {
  const float* in =
      kernel_ == Kernel::kFew ? in_ + begin * in_columns_ : packed_.data() + packed * in_columns_;
  jobs_.push_back({&weight, &bias, begin, end, in, out, store, kernel_});
}

void Forward::multiply() {
  const auto in_four_bits = [](const Job& job) {
    return job.weight->number == kernels::Number::kInt4;
  };
  if (std::ranges::any_of(jobs_, in_four_bits)) quantize();
  const auto in_tiles = [&](const Job& job) {
    return job.kernel == Kernel::kMany && !in_four_bits(job) && !job.weight->panels;
  };
  if (std::ranges::any_of(jobs_, in_tiles)) pack();
  run_jobs(jobs_);
  if (!after_.empty()) run_jobs(after_);
}

void Forward::run_jobs(const std::vector<Job>& jobs) {
  slices_.clear();
  const int64_t parts = threads_.threads() == 1 ? 1 : threads_.threads() * 8;
  for (const Job& job : jobs) {
    const int64_t outputs = job.weight->rows;
    const int64_t block = job.weight->panels ? kernels::kPanelOutputs : kSliceOutputs;
    const int64_t step = round_up((outputs + parts - 1) / parts, block);
    for (int64_t n = 0; n < outputs; n += step)
      slices_.push_back({&job, n, std::min(outputs, n + step)});
  }
  share_slices();
  const size_t ranges = ranges_.size();
  threads_.run(static_cast<int>(ranges), [this, ranges](int own, int thread) {
    for (size_t i = 0; i < ranges; ++i) {
      Range& range = ranges_[(static_cast<size_t>(own) + i) % ranges];
      for (size_t at; (at = range.next.fetch_add(1, std::memory_order_relaxed)) < range.end;)
        slice(*slices_[at].job, slices_[at].begin, slices_[at].end, thread);
    }
  });
}

// Neighbouring slices go to one thread: a kernel prefetches into the slice behind its own, which
// would be another thread's if slices were handed out one by one.
void Forward::share_slices() {
  const auto weights = [](const Slice& slice) {
    return (slice.end - slice.begin) * slice.job->weight->columns *
           (slice.job->up == nullptr ? 1 : 2);
  };
  int64_t left = 0;
  for (const Slice& slice : slices_) left += weights(slice);
  size_t at = 0;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    // An equal part of what is left; the last one takes all.
    const int64_t part = left / static_cast<int64_t>(ranges_.size() - i);
    ranges_[i].next.store(at, std::memory_order_relaxed);
    for (int64_t taken = 0; at < slices_.size() && (taken < part || i + 1 == ranges_.size());
         ++at) {
      taken += weights(slices_[at]);
      left -= weights(slices_[at]);
    }
    ranges_[i].end = at;
  }
}

void Forward::slice(const Job& job, int64_t begin, int64_t end, int thread) {
  product(job, *job.weight, *job.bias, job.out, job.store, begin, end, thread);
  if (job.up == nullptr) return;
  product(job, *job.up, *job.up_bias, up_.data(), Store::kSet, begin, end, thread);
  for (int64_t row = job.begin; row < job.end; ++row) {
    const int64_t at = row * job.weight->rows + begin;
    kernels::silu_mul(job.out + at, up_.data() + at, end - begin);
  }
}

void Forward::product(const Job& job, const WeightView& weight, const WeightView& bias, float* out,
                      Store store, int64_t begin, int64_t end, int thread) {
  const int64_t stride = weight.rows, rows = job.end - job.begin;
  float* y = out + job.begin * stride;
  if (weight.number == kernels::Number::kInt4) {
    const int64_t groups = kernels::int4_groups(weight.columns);
    kernels::linear_int4(quantized_.data() + job.begin * groups, rows, weight, begin, end, y,
                         stride, store);
  } else if (weight.panels) {
    const float* in = job.kernel == Kernel::kFew ? job.in : in_ + job.begin * in_columns_;
    kernels::linear_panels(in, weight.columns, rows, weight, begin, end, y, stride, store,
                           scratch_[thread].data());
  } else if (job.kernel == Kernel::kFew) {
    kernels::linear_few(job.in, weight.columns, rows, weight, begin, end, y, stride, store);
  } else {
    kernels::linear_many(job.in, rows, weight, begin, end, y, stride, store,
                         scratch_[thread].data());
  }
  if (bias.data == nullptr) return;
  for (int64_t row = 0; row < rows; ++row) kernels::add_bias(bias, begin, end, y + row * stride);
}

// A query or key as attention reads it: normed by itself where the model does that, then rotated.
void Forward::place_head(const WeightView& norm, int32_t position, float* head) const {
  const int64_t d = config_.head_dim, at = position * (d / 2);
  if (norm.data != nullptr)
    kernels::rms_norm_row(head, norm, static_cast<float>(config_.rms_norm_eps), head);
  kernels::rope_head(head, d, model_.cos.data() + at, model_.sin.data() + at);
}

void Forward::rotate_and_store(int64_t layer, int64_t row, int64_t kv_head) {
  const LayerView& w = model_.layers[layer];
  const int64_t d = config_.head_dim, group = config_.heads_per_kv();
  const int32_t position = rows_[row].position;
  float* key = k_.data() + (row * config_.key_heads() + kv_head) * d;
  // Two keys of a second map V1 share a value; each stores it beside itself.
  const int64_t value_head = kv_head / (config_.key_heads() / config_.kv_heads);
  const float* value = v_.data() + (row * config_.kv_heads + value_head) * d;
  place_head(w.k_norm, position, key);
  for (int64_t i = 0; i < group; ++i) {
    const int64_t head = row * config_.query_heads() + query_head(kv_head, i);
    place_head(w.q_norm, position, q_.data() + head * d);
  }
  const int32_t block = rows_[row].segment->blocks[position / kernels::kBlockTokens];
  kernels::write_kv(pool_.layout(), pool_.block(layer, block), kv_head,
                    position % kernels::kBlockTokens, key, value);
}

void Forward::attend_few(int64_t layer) {
  const auto rows = static_cast<int64_t>(rows_.size());
  const int64_t heads = config_.key_heads();
  threads_.run(static_cast<int>(rows * heads), [&](int i, int thread) {
    const int64_t row = i / heads, kv_head = i % heads;
    rotate_and_store(layer, row, kv_head);
    tile(layer, row, 1, kv_head, thread);
  });
}

void Forward::attend_many(int64_t layer) {
  // All keys of the step are stored before anybody reads one.
  const int64_t heads = config_.key_heads();
  threads_.run(static_cast<int>(rows_.size()), [&](int row, int) {
    for (int64_t head = 0; head < heads; ++head) rotate_and_store(layer, row, head);
  });
  const auto tiles = static_cast<int64_t>(tiles_.size());
  threads_.run(static_cast<int>(tiles * heads), [&](int i, int thread) {
    const auto [first, count] = tiles_[i / heads];
    tile(layer, first, count, i % heads, thread);
  });
}

void Forward::tile(int64_t layer, int64_t first, int64_t count, int64_t kv_head, int thread) {
  if (config_.differential()) return tile_maps(layer, first, count, kv_head, thread);
  attend(layer, first, count, kv_head, kv_head, o_.data(), config_.head_dim, thread);
}

void Forward::attend(int64_t layer, int64_t first, int64_t count, int64_t kv_head,
                     int64_t value_head, float* out, int64_t stride, int thread) {
  const int64_t d = config_.head_dim, group = config_.heads_per_kv();
  const float* queries[kernels::kMostQueries];
  float* outputs[kernels::kMostQueries];
  int64_t visible[kernels::kMostQueries];
  int64_t hidden[kernels::kMostQueries];
  const int64_t window = config_.sliding_window;
  // A group wider than a tile is cut; it always reads the same keys.
  for (int64_t h0 = 0; h0 < group; h0 += kernels::kMostQueries) {
    const int64_t h1 = std::min(group, h0 + kernels::kMostQueries);
    size_t n = 0;
    for (int64_t row = first; row < first + count; ++row) {
      for (int64_t h = h0; h < h1; ++h, ++n) {
        const int64_t head = row * config_.query_heads() + query_head(kv_head, h);
        queries[n] = q_.data() + head * d;
        outputs[n] = out + head * stride;
        visible[n] = rows_[row].position + 1;
        hidden[n] = std::max<int64_t>(0, visible[n] - window);
      }
    }
    kernels::attend({.layout = &pool_.layout(),
                     .kv_head = kv_head,
                     .memory = pool_.block(layer, 0),
                     .stride_bytes = pool_.stride_bytes(),
                     .blocks = rows_[first].segment->blocks,
                     .scale = 1.0F / std::sqrt(static_cast<float>(d)),
                     .queries = {queries, n},
                     .visible = {visible, n},
                     .outputs = {outputs, n},
                     .hidden = {hidden, window == 0 ? 0 : n},
                     .value_head = value_head,
                     .largest = extremes_ == nullptr ? nullptr : &largest_logits_[thread]},
                    attention_[thread]);
  }
}

}  // namespace dex::serve
