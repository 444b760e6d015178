#include "scheduler/core/estimate.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "proto/gates.h"
#include "scheduler/core/dex_shape.h"
#include "scheduler/core/memory_fit.h"
#include "scheduler/core/methods.h"

namespace dex::core {

namespace {

constexpr int64_t kFloat = 4;
constexpr double kLargestProbe = 4096;  // tokens (finetuning.proto, BaseGuardOptions)

int64_t kvo_parameters(const dex::v1::Model& m) {
  const int64_t d = m.head_dim();
  const int64_t weights =
      2 * m.kv_heads() * d * m.hidden_size() + m.query_heads() * d * m.hidden_size();
  const int64_t biases =
      (m.attention_bias() ? 2 * m.kv_heads() * d : 0) + (m.output_bias() ? m.hidden_size() : 0);
  return m.layers() * (weights + biases);
}

// All of self_attn.
int64_t attention_parameters(const dex::v1::Model& m) {
  const int64_t q = m.query_heads() * m.head_dim(), kv = m.kv_heads() * m.head_dim(),
                D = m.hidden_size();
  const int64_t biases = (m.attention_bias() ? q + 2 * kv : 0) + (m.output_bias() ? D : 0);
  return m.layers() * (D * (2 * q + 2 * kv) + biases + (m.qk_norm() ? 2 * m.head_dim() : 0));
}

// What a second map adds (worker/model/second_map.h).
int64_t second_map_parameters(const dex::v1::FineTuningJobSpec& spec, const dex::v1::Model& m) {
  if (!spec.has_diff()) return 0;
  const int64_t q = m.query_heads() * m.head_dim(), kv = m.kv_heads() * m.head_dim(),
                D = m.hidden_size(), row = D + (m.attention_bias() ? 1 : 0);
  const bool keys = spec.diff().version() == dex::v1::DiffMethod::VERSION_V1;
  return m.layers() * (keys ? (q + kv) * row + 4 * m.head_dim() : q * row + m.query_heads() * D);
}

// [out, in] of a linear that LoRA may change.
std::pair<int64_t, int64_t> shape_of(const std::string& linear, const dex::v1::Model& m) {
  const int64_t q = m.query_heads() * m.head_dim(), kv = m.kv_heads() * m.head_dim();
  if (linear == "q_proj") return {q, m.hidden_size()};
  if (linear == "k_proj" || linear == "v_proj") return {kv, m.hidden_size()};
  if (linear == "o_proj") return {m.hidden_size(), q};
  if (linear == "down_proj") return {m.hidden_size(), m.intermediate_size()};
  return {m.intermediate_size(), m.hidden_size()};
}

int64_t lora_parameters(const dex::v1::FineTuningJobSpec& spec, const dex::v1::Model& m) {
  const dex::v1::LoraMethod* lora = lora_of(spec);
  int64_t sides = 0;
  if (!lora) return 0;
  for (const std::string& target : lora->target_modules()) {
    const auto [out, in] = shape_of(target, m);
    sides += out + in;
  }
  return m.layers() * lora->r() * sides;
}

int64_t adapter_places(const dex::v1::FineTuningJobSpec& spec) {
  if (!spec.has_adapter()) return 0;
  return spec.adapter().placement() == dex::v1::AdapterMethod::PLACEMENT_BOTH ? 2 : 1;
}

int64_t adapter_parameters(const dex::v1::FineTuningJobSpec& spec, const dex::v1::Model& m) {
  const int64_t size = spec.adapter().size(), D = m.hidden_size();
  return adapter_places(spec) * m.layers() * (2 * size * D + size + D);
}

// The model as far as a job changes it: `layers` are those from hyperparameters.first_layer up.
dex::v1::Model adapted_part(const dex::v1::FineTuningJobSpec& spec, dex::v1::Model model) {
  const auto below =
      static_cast<int32_t>(std::min<int64_t>(spec.hyperparameters().first_layer(), model.layers()));
  model.set_layers(model.layers() - below);
  return model;
}

// Forward, input gradients, and weight gradients of what is trained (performance.md §2), a token.
// What stands beside the base's weights costs all three by itself. Nothing runs backward below the
// first of `adapted` layers.
double flops_per_token(const dex::v1::Model& m, int32_t adapted, int64_t trained, int64_t beside,
                       int64_t length, bool second_map) {
  const double head = static_cast<double>(m.vocab_size()) * m.hidden_size();
  const double matrices = static_cast<double>(m.parameters()) - (m.tied_embeddings() ? 0.0 : head);
  const double above = m.layers() > 0 ? static_cast<double>(adapted) / m.layers() : 1.0;
  const double forward = matrices + static_cast<double>(beside),
               backward = forward - (1.0 - above) * (matrices - head);
  const double attention =
      // Each map of a DiffLlama is made for both halves of the values.
      (m.differential() || second_map ? 8.0 : 4.0) * (static_cast<double>(length) / 2) *
      m.query_heads() * m.head_dim() * m.layers();
  return 2.0 * (forward + backward) + 2.0 * static_cast<double>(trained) +
         (1.0 + 2.5 * above) * attention;
}

// Inputs of products that only some methods train, so that only they keep them: of the MLP's
// linears, and around bottleneck adapters.
int64_t more_activations(const dex::v1::FineTuningJobSpec& spec, const dex::v1::Model& m) {
  bool into_mlp = trained_weights(spec) == TrainedWeights::kAll, into_down = into_mlp;
  if (const auto* lora = lora_of(spec)) {
    for (const std::string& target : lora->target_modules()) {
      into_mlp = into_mlp || target == "gate_proj" || target == "up_proj";
      into_down = into_down || target == "down_proj";
    }
  }
  return (into_mlp ? m.hidden_size() : 0) + (into_down ? m.intermediate_size() : 0) +
         adapter_places(spec) * (m.hidden_size() + spec.adapter().size());
}

// What is kept between two maps beside what attention keeps anyway: both halves' values and
// outputs, their difference before its norm; for λ's gradient the halves side by side.
int64_t differential_activations(const dex::v1::FineTuningJobSpec& spec, const dex::v1::Model& m) {
  if (!m.differential()) return 0;
  const int64_t halves = trained_weights(spec) == TrainedWeights::kAll ? 5 : 3;
  return (halves * m.query_heads() + m.kv_heads()) * m.head_dim();
}

// Of a second map: queries before and after RoPE, its result, the difference; keys with V1.
int64_t second_map_activations(const dex::v1::FineTuningJobSpec& spec, const dex::v1::Model& m) {
  if (!spec.has_diff()) return 0;
  const bool keys = spec.diff().version() == dex::v1::DiffMethod::VERSION_V1;
  return (5 * m.query_heads() + (keys ? 2 * m.kv_heads() : 0)) * m.head_dim();
}

// What one token of a micro-batch keeps for the backward pass: performance.md §2, fused SwiGLU.
int64_t activation_bytes_per_token(const dex::v1::FineTuningJobSpec& spec,
                                   const dex::v1::Model& m) {
  const int64_t d = m.head_dim();
  const int64_t queries_and_keys = (m.query_heads() + m.kv_heads()) * d;
  const int64_t elements = 3 * m.hidden_size() + (m.qk_norm() ? 3 : 2) * queries_and_keys +
                           2 * m.intermediate_size() + more_activations(spec, m) +
                           differential_activations(spec, m) + second_map_activations(spec, m);
  return elements * m.layers() * kFloat;
}

// Early stopping keeps the best weights apart from the last ones, in memory and in checkpoints.
int64_t kept_apart_bytes(const dex::v1::FineTuningJobSpec& spec, int64_t trained) {
  const auto& early = spec.early_stopping();
  return early.enabled() && early.restore_best() ? trained * kFloat : 0;
}

int64_t peak_memory(const dex::v1::FineTuningJobSpec& spec, const dex::v1::Model& m,
                    int64_t trained) {
  const auto& hyper = spec.hyperparameters();
  const int64_t micro_tokens =
      static_cast<int64_t>(hyper.micro_batch_size()) * hyper.max_seq_length();
  const int64_t logits_chunk = 160 * m.vocab_size() * kFloat;
  const int64_t runtime = 300 << 20;
  // The gradients of embedding and head before they are added to the others.
  const bool all = trained_weights(spec) == TrainedWeights::kAll;
  const int64_t head_gradients = all ? 2 * int64_t{m.vocab_size()} * m.hidden_size() * kFloat : 0;
  // Base in fp32; weights, gradients and two moments of what is trained.
  return (m.parameters() + second_map_parameters(spec, m)) * kFloat + 4 * trained * kFloat +
         kept_apart_bytes(spec, trained) +
         micro_tokens * activation_bytes_per_token(spec, adapted_part(spec, m)) + logits_chunk +
         head_gradients + runtime;
}

// What measuring KL to the base reads: the base once, then the adapted model at evaluations, or
// once for a gate alone.
double probed_tokens(const dex::v1::FineTuningJobSpec& spec, double evaluations) {
  if (!proto::needs_probe(spec)) return 0;
  const auto& guard = spec.watchdog().base_guard();
  const double measured =
      guard.kl_max() > 0 ? evaluations / std::max(1u, guard.every_evals()) : 1.0;
  return (1 + measured) * kLargestProbe;
}

}  // namespace

ParameterCount count_parameters(const dex::v1::FineTuningJobSpec& spec,
                                const dex::v1::Model& whole) {
  const dex::v1::Model model = adapted_part(spec, whole);
  ParameterCount count;
  count.added = lora_parameters(spec, model) + adapter_parameters(spec, model) +
                second_map_parameters(spec, model);
  if (spec.has_dex()) count.added += branch_parameters(spec.dex(), model);
  count.trained = count.added;
  switch (trained_weights(spec)) {
    case TrainedWeights::kAll:
      count.trained += model.parameters();
      break;
    case TrainedWeights::kAttention:
      count.trained += attention_parameters(model);
      break;
    case TrainedWeights::kKvo:
      count.trained += kvo_parameters(model);
      break;
    case TrainedWeights::kNone:
      break;
  }
  return count;
}

int64_t peak_host_memory(const dex::v1::FineTuningJobSpec& spec, const dex::v1::Model& model) {
  return peak_memory(spec, model, count_parameters(spec, model).trained);
}

double flops_per_trained_token(const dex::v1::FineTuningJobSpec& spec,
                               const dex::v1::Model& model) {
  const dex::v1::Model adapted = adapted_part(spec, model);
  return flops_per_token(model, adapted.layers(), count_parameters(spec, model).trained,
                         lora_parameters(spec, adapted) + adapter_parameters(spec, adapted) +
                             second_map_parameters(spec, adapted),
                         spec.hyperparameters().max_seq_length(), spec.has_diff());
}

dex::v1::Estimate estimate(const Resolved& resolved, const dex::v1::Model& model,
                           const DeviceFacts& device) {
  const auto& spec = resolved.config.spec();
  const Workload& work = resolved.workload;
  const ParameterCount count = count_parameters(spec, model);

  dex::v1::Estimate out;
  out.set_method(dex::v1::Estimate::METHOD_FORMULA);
  out.set_train_tokens_per_step(work.tokens_per_update);
  out.set_total_steps(work.updates);
  out.set_train_tokens(work.tokens_per_update * work.updates);
  out.set_valid_tokens(std::min<int64_t>(work.validation_tokens, spec.evaluation().max_tokens()));
  const double per_token = flops_per_trained_token(spec, model);
  const double evaluations =
      2.0 + static_cast<double>(work.updates) / std::max(1u, spec.evaluation().every_steps());
  // Evaluation is a forward pass: about 2.3 of the 6.3 units that a trained token costs.
  const double tokens = static_cast<double>(out.train_tokens()) +
                        0.4 * (evaluations * static_cast<double>(out.valid_tokens()) +
                               probed_tokens(spec, evaluations));
  const double start_up = 10.0 + static_cast<double>(model.parameters()) / 50e6;
  // A second process measures the gates' tasks, and loads the model again.
  const double gates =
      resolved.gate_flops > 0 ? start_up + resolved.gate_flops / device.flops_per_second : 0;
  out.set_expected_duration_seconds(start_up + tokens * per_token / device.flops_per_second +
                                    gates);
  out.set_low_seconds(0.6 * out.expected_duration_seconds());
  out.set_high_seconds(2.5 * out.expected_duration_seconds());

  if (const auto cost = cost_of(device.prices, spec.pool(), out.expected_duration_seconds())) {
    out.set_cost(*cost);
    out.set_cost_currency(device.prices.currency);
  }

  out.set_trained_parameters(count.trained);
  out.set_added_parameters(count.added);
  out.set_artifact_class(artifact_class(spec, model));
  // A checkpoint has the branch folded in.
  const bool whole = out.artifact_class() == "MODEL";
  const int64_t published =
      whole ? model.parameters() + second_map_parameters(spec, model) : count.trained;
  out.set_artifact_bytes(published * kFloat);
  out.set_checkpoint_bytes(3 * count.trained * kFloat + kept_apart_bytes(spec, count.trained));
  out.set_peak_host_memory_bytes(peak_memory(spec, model, count.trained));
  out.set_fits(device.memory_bytes == 0 || out.peak_host_memory_bytes() <= device.memory_bytes);
  out.set_allowed_to_proceed(out.fits());
  if (!out.fits()) {
    const SettingChanges fit = nearest_fit(spec, model, device.memory_bytes);
    out.mutable_nearest_fit()->insert(fit.begin(), fit.end());
    out.add_blockers("needs about " + std::to_string(out.peak_host_memory_bytes() >> 20) +
                     " MiB, the largest worker has " + std::to_string(device.memory_bytes >> 20) +
                     " MiB; lower micro_batch_size or max_seq_length" +
                     (fit.empty() ? "" : ": " + text_of(fit) + " would fit"));
  }
  for (const auto& warning : resolved.warnings) out.add_warnings(warning);
  *out.mutable_effective_config() = resolved.config;
  return out;
}

}  // namespace dex::core
