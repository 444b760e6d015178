#include "worker/model/llama.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sigmoid.h>

#include <stdexcept>
#include <string>

#include "worker/kernels/causal_attention.h"
#include "worker/kernels/check.h"
#include "worker/kernels/head_map.h"
#include "worker/kernels/projection.h"
#include "worker/kernels/rms_norm.h"
#include "worker/kernels/rope.h"
#include "worker/kernels/swiglu.h"
#include "worker/model/dex_options.h"
#include "worker/model/differential_attention.h"
#include "worker/model/rope_frequencies.h"

namespace dex::model {

namespace {

using at::Tensor;
using kernels::check;

// One forward pass: what its layers share, and their parts as functions.
class Pass {
 public:
  Pass(const Config& config, const Weights& weights, const Batch& batch,
       const Adaptation& adaptation, const Observer& observer)
      : config_(config),
        weights_(replaced_weights(weights, adaptation)),
        batch_(batch),
        adaptation_(adaptation),
        observer_(observer) {
    const auto type = weights.embed.scalar_type();
    std::tie(cos_, sin_) = kernels::rope_angles(batch.positions, rope_frequencies(config));
    cos_ = cos_.to(type);
    sin_ = sin_.to(type);
    for (size_t i = 0; i + 1 < batch.bounds.size(); ++i)
      lengths_.push_back(batch.bounds[i + 1] - batch.bounds[i]);
  }

  Tensor embedded() const { return weights_.embed.index_select(0, batch_.tokens); }

  // From the residual stream before `first` to that before `last`.
  Tensor blocks(int64_t first, int64_t last, Tensor x) const {
    for (int64_t layer = first; layer < last; ++layer) x = block(layer, x);
    return x;
  }

  Tensor run(int64_t first, const Tensor& x) const {
    return kernels::rms_norm(blocks(first, config_.layers, x), weights_.norm, config_.rms_norm_eps);
  }

  Tensor block(int64_t layer, const Tensor& x) const {
    const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
    const LayerAdaptation& a = adapted(layer);
    const AdapterActivation activation = adaptation_.options.adapter.activation;
    // The sums go into the fresh product: nothing saved it, and the residual stream itself is never
    // changed.
    const Tensor mixed = attention(layer, kernels::rms_norm(x, w.input_norm, config_.rms_norm_eps));
    const Tensor after = apply_adapter(mixed, a.attention_adapter, activation).add_(x);
    const Tensor normed = kernels::rms_norm(after, w.post_norm, config_.rms_norm_eps);
    const Tensor inner = kernels::swiglu(project(layer, Linear::kGate, normed, w.gate, w.gate_bias),
                                         project(layer, Linear::kUp, normed, w.up, w.up_bias));
    const Tensor out = project(layer, Linear::kDown, inner, w.down, w.down_bias);
    return apply_adapter(out, a.mlp_adapter, activation).add_(after);
  }

 private:
  [[nodiscard]] const LayerAdaptation& adapted(int64_t layer) const {
    static const LayerAdaptation kNothing{};
    return adaptation_.layers.empty() ? kNothing : adaptation_.layers[static_cast<size_t>(layer)];
  }

  // A linear with what the adaptation adds beside it. A fresh tensor each time, so the caller may
  // add to it in place.
  Tensor project(int64_t layer, Linear which, const Tensor& x, const Tensor& weight,
                 const Tensor& bias) const {
    const LowRank& term = adapted(layer).lora[which];
    if (!term.defined()) return kernels::projection(x, weight, bias);
    const uint64_t place =
        static_cast<uint64_t>(layer) * kLinears.size() + static_cast<uint64_t>(which);
    const Tensor read = drop_out(x, adaptation_.options.lora.dropout, batch_.noise, place);
    return kernels::projection(x, weight, bias, {read, term.a, term.b, term.scale});
  }

  Tensor attention(int64_t layer, const Tensor& x) const {
    const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
    const Tensor q = kernels::rope(
        head_norm(by_head(project(layer, Linear::kQ, x, w.q, w.q_bias), config_.query_heads()),
                  w.q_norm),
        cos_, sin_);
    const Tensor k = kernels::rope(
        head_norm(by_head(project(layer, Linear::kK, x, w.k, w.k_bias), config_.key_heads()),
                  w.k_norm),
        cos_, sin_);
    const Tensor v = by_head(project(layer, Linear::kV, x, w.v, w.v_bias), config_.kv_heads);
    const Tensor o = config_.differential() ? subtracted(layer, x, q, k, v) : mix(q, k, v);
    if (observer_.on_heads) {
      const int64_t heads = config_.output_heads(), width = config_.output_width();
      observer_.on_heads(layer, q.detach(), k.detach(),
                         o.detach().reshape({o.size(0), heads, width}));
    }
    const Tensor y = output(layer, o, v);
    return w.o_bias.defined() ? y + w.o_bias : y;
  }

  // Of a differential model, [N, H, d] like everybody's; DiffLlama's H/2 heads have width 2d.
  [[nodiscard]] Tensor subtracted(int64_t layer, const Tensor& x, const Tensor& q, const Tensor& k,
                                  const Tensor& v) const {
    const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
    const Attend attend = [this](const Tensor& queries, const Tensor& keys, const Tensor& values) {
      return mix(queries, keys, values);
    };
    if (config_.attention == Attention::kSecondMapV2) {
      const Tensor logits = at::mm(x, w.lambda_proj.t());
      if (observer_.on_second_map)
        observer_.on_second_map(layer, (at::sigmoid(logits) * adaptation_.mix).detach());
      return differential_v2(q, k, v, logits, attend, adaptation_.mix);
    }
    const double init = lambda_init(layer);
    const Tensor lambda =
        differential_lambda({w.lambda_q1, w.lambda_k1, w.lambda_q2, w.lambda_k2}, init);
    if (observer_.on_second_map) {
      const double mix = config_.attention == Attention::kSecondMapV1 ? adaptation_.mix : 1;
      observer_.on_second_map(layer, (lambda * mix).detach().reshape({1, 1}));
    }
    if (config_.attention == Attention::kSecondMapV1)
      return second_map_v1(q, k, v, adaptation_.mix * lambda, attend);
    const int64_t pairs = config_.kv_heads / 2;
    const DifferentialV1 how{.lambda = lambda, .lambda_init = init, .eps = config_.rms_norm_eps};
    return differential_v1(q, k, {v.narrow(1, 0, pairs), v.narrow(1, pairs, pairs)}, how, attend)
        .view_as(q);
  }

  [[nodiscard]] Tensor by_head(const Tensor& x, int64_t heads) const {
    return x.view({x.size(0), heads, config_.head_dim});
  }

  // RMSNorm of every head of x [N, H, d] by itself, where the model has one.
  [[nodiscard]] Tensor head_norm(const Tensor& x, const Tensor& weight) const {
    if (!weight.defined()) return x;
    return kernels::rms_norm(x.reshape({-1, config_.head_dim}), weight, config_.rms_norm_eps)
        .view_as(x);
  }

  // Causal attention inside each document.
  Tensor mix(const Tensor& q, const Tensor& k, const Tensor& v) const {
    return kernels::causal_attention(q, k, v, batch_.bounds, config_.sliding_window);
  }

  // The output projection, with the branch where the layer has one.
  Tensor output(int64_t layer, const Tensor& o, const Tensor& v) const {
    const LayerAdaptation& a = adapted(layer);
    const Tensor& w_o = weights_.layers[static_cast<size_t>(layer)].o;
    const bool branch = acts(a);
    if (branch && observer_.on_branch) {
      at::NoGradGuard no_grad;
      observer_.on_branch(layer, o.detach(), scaled_difference(a, o.detach(), v.detach()));
    }
    // Gates and low-rank terms need O' itself; the fused ops never make it.
    if (!observer_.head_gates.empty() || a.lora[Linear::kO].defined()) {
      return changed_output(layer, branch ? o + scaled_difference(a, o, v) : o, w_o);
    }
    if (!branch) return kernels::projection(o.reshape({o.size(0), -1}), w_o);
    return branched_output(adaptation_.options, a.branch, {o, v, batch_.bounds}, w_o, lambda(a),
                           a.mask);
  }

  // s·λ·m_h·D_h [N, H, d] in simple ops.
  [[nodiscard]] Tensor scaled_difference(const LayerAdaptation& a, const Tensor& o,
                                         const Tensor& v) const {
    return difference(adaptation_.options, a.branch, {o, v, batch_.bounds}) *
           kernels::branch_strength(lambda(a), a.mask, adaptation_.options.sign_value());
  }

  // From O' [N, H, d], with ξ of method.md §4.2 on each head where there are gates.
  Tensor changed_output(int64_t layer, Tensor changed, const Tensor& w_o) const {
    if (!observer_.head_gates.empty()) {
      const Tensor& xi = observer_.head_gates[static_cast<size_t>(layer)];
      check(xi.size(1) == config_.output_heads(), "llama",
            "head_gates must be [documents, output_heads]", xi);
      const Tensor gates = xi.index_select(0, document_of_row());
      changed = changed.reshape({changed.size(0), gates.size(1), -1}) * gates.unsqueeze(-1);
    }
    const Tensor flat = changed.reshape({changed.size(0), -1});
    return project(layer, Linear::kO, flat, w_o, {});
  }

  [[nodiscard]] bool acts(const LayerAdaptation& a) const {
    return adaptation_.options.has_branch() && a.mask.defined() &&
           a.mask.count_nonzero().item<int64_t>() > 0;
  }

  static Tensor lambda(const LayerAdaptation& a) {
    if (a.branch.lambda_learn.defined() && a.lambda.learned != 0) {
      return a.branch.lambda_learn * a.lambda.learned + a.lambda.fixed;
    }
    return at::full({1}, a.lambda.fixed, a.mask.options());
  }

  [[nodiscard]] Tensor document_of_row() const {
    Tensor index = at::empty({batch_.tokens.size(0)}, at::kLong);
    for (size_t i = 0; i < lengths_.size(); ++i) {
      index.narrow(0, batch_.bounds[i], lengths_[i]).fill_(static_cast<int64_t>(i));
    }
    return index;
  }

  const Config& config_;
  const Weights weights_;  // with the adaptation's replacements
  const Batch& batch_;
  const Adaptation& adaptation_;
  const Observer& observer_;
  Tensor cos_, sin_;
  std::vector<int64_t> lengths_;
};

// `weights` for a pass through `layer` alone, in `type`; the others keep theirs, which nobody
// reads.
Weights layer_in(at::ScalarType type, int64_t layer, Weights weights) {
  for (const auto& [name, place] : layer_places(weights.layers[static_cast<size_t>(layer)])) {
    if (place->defined()) *place = place->to(type);
  }
  weights.embed = at::empty({0}, weights.embed.options().dtype(type));  // says what a pass is in
  return weights;
}

Adaptation layer_in(at::ScalarType type, int64_t layer, Adaptation adaptation) {
  if (adaptation.layers.empty()) return adaptation;
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  for (const Trainable& entry : trainables(adaptation)) {
    if (entry.name.starts_with(prefix)) *entry.tensor = entry.tensor->to(type);
  }
  Tensor& mask = adaptation.layers[static_cast<size_t>(layer)].mask;
  if (mask.defined()) mask = mask.to(type);
  return adaptation;
}

void check_range(const Tensor& values, int64_t limit, const char* what) {
  const int64_t low = values.min().item<int64_t>(), high = values.max().item<int64_t>();
  if (low >= 0 && high < limit) return;
  throw std::runtime_error("[llama] " + std::string(what) + " must be in 0…" +
                           std::to_string(limit - 1) + ", got " +
                           std::to_string(low < 0 ? low : high));
}

void check_batch(const Batch& batch, const Config& config) {
  check(batch.tokens.defined() && batch.tokens.dim() == 1 &&
            batch.tokens.scalar_type() == at::kLong && batch.tokens.size(0) > 0,
        "llama", "tokens must be int64 [N], N > 0", batch.tokens);
  check(batch.positions.defined() && batch.positions.sizes() == batch.tokens.sizes() &&
            batch.positions.scalar_type() == at::kLong,
        "llama", "positions must be int64 [N]", batch.positions);
  check_range(batch.tokens, config.vocab_size, "token ids");
  check_range(batch.positions, config.max_position_embeddings, "positions");
  const auto& bounds = batch.bounds;
  bool good = bounds.size() >= 2 && bounds.front() == 0 && bounds.back() == batch.tokens.size(0);
  for (size_t i = 0; good && i + 1 < bounds.size(); ++i) good = bounds[i] < bounds[i + 1];
  if (!good) throw std::runtime_error("[llama] bounds must rise from 0 to N");
}

// A branch is defined on what a head's own map gives (method.md §3.6).
void check_branch(const Config& config, const Adaptation& adaptation) {
  if (config.differential() && adaptation.options.has_branch() && !adaptation.layers.empty())
    throw std::runtime_error("[llama] " + branch_refusal(config));
}

void check_prefix(int64_t layers, const Config& config, const Adaptation& adaptation,
                  const Observer& observer) {
  const std::string prefix = "a frozen prefix of " + std::to_string(layers) + " layers";
  if (layers < 0 || layers > config.layers) {
    throw std::runtime_error("[llama] " + prefix + " does not fit a model of " +
                             std::to_string(config.layers));
  }
  if (observer.on_heads || observer.on_second_map || !observer.head_gates.empty())
    throw std::runtime_error("[llama] heads can't be measured with " + prefix);
  if (adaptation.layers.empty() || first_changed_layer(adaptation) >= layers) return;
  throw std::runtime_error("[llama] the adaptation changes layer " +
                           std::to_string(first_changed_layer(adaptation)) + ", below " + prefix);
}

}  // namespace

Batch pack(const std::vector<std::vector<int64_t>>& documents) {
  Batch batch;
  batch.bounds.push_back(0);
  for (const auto& document : documents) {
    batch.bounds.push_back(batch.bounds.back() + static_cast<int64_t>(document.size()));
  }
  batch.tokens = at::empty({batch.bounds.back()}, at::kLong);
  batch.positions = at::empty({batch.bounds.back()}, at::kLong);
  auto *token = batch.tokens.mutable_data_ptr<int64_t>(),
       *position = batch.positions.mutable_data_ptr<int64_t>();
  for (const auto& document : documents) {
    for (size_t i = 0; i < document.size(); ++i) {
      *token++ = document[i];
      *position++ = static_cast<int64_t>(i);
    }
  }
  return batch;
}

Llama::Llama(const Config& config, const Weights& weights) : config_(config), weights_(weights) {
  if (static_cast<int64_t>(weights.layers.size()) != config.layers) {
    throw std::runtime_error("[llama] weights must have " + std::to_string(config.layers) +
                             " layers, got " + std::to_string(weights.layers.size()));
  }
}

void Llama::check_call(const Batch& batch, const Adaptation& adaptation) const {
  check_batch(batch, config_);
  if (!adaptation.layers.empty() && adaptation.layers.size() != weights_.layers.size()) {
    throw std::runtime_error("[llama] adaptation must have " + std::to_string(config_.layers) +
                             " layers, got " + std::to_string(adaptation.layers.size()));
  }
  check_branch(config_, adaptation);
}

Tensor Llama::hidden(const Batch& batch, const Adaptation& adaptation,
                     const Observer& observer) const {
  check_call(batch, adaptation);
  const Pass pass(config_, weights_, batch, adaptation, observer);
  const int64_t known = batch.prefix == nullptr ? 0 : batch.prefix->layers();
  if (known == 0) return pass.run(0, pass.embedded());
  check_prefix(known, config_, adaptation, observer);
  return pass.run(known, batch.prefix->entering(batch));
}

Tensor Llama::entering(int64_t layer, const Batch& batch) const {
  const Adaptation base;
  const Observer nobody;
  check_call(batch, base);
  const Pass pass(config_, weights_, batch, base, nobody);
  return pass.blocks(0, layer, pass.embedded());
}

Tensor Llama::embedded(const Batch& batch, const Adaptation& adaptation) const {
  check_call(batch, adaptation);
  return replaced_weights(weights_, adaptation).embed.index_select(0, batch.tokens);
}

Tensor Llama::block(int64_t layer, const Tensor& x, const Batch& batch,
                    const Adaptation& adaptation, const Observer& observer) const {
  check_call(batch, adaptation);
  const auto type = x.scalar_type();
  if (type == weights_.embed.scalar_type())
    return Pass(config_, weights_, batch, adaptation, observer).block(layer, x);
  const Weights weights = layer_in(type, layer, weights_);
  const Adaptation in_type = layer_in(type, layer, adaptation);
  return Pass(config_, weights, batch, in_type, observer).block(layer, x);
}

Tensor Llama::normed(const Tensor& x, const Adaptation& adaptation) const {
  const Tensor norm = replaced_weights(weights_, adaptation).norm.to(x.scalar_type());
  return kernels::rms_norm(x, norm, config_.rms_norm_eps);
}

Tensor Llama::logits(const Batch& batch, const Adaptation& adaptation) const {
  return at::mm(hidden(batch, adaptation), lm_head(adaptation).t());
}

Tensor Llama::lm_head(const Adaptation& adaptation) const {
  const bool tied = weights_.lm_head.is_same(weights_.embed);
  const Tensor& replaced = tied ? adaptation.embed : adaptation.lm_head;
  return replaced.defined() ? replaced : weights_.lm_head;
}

}  // namespace dex::model
