#include "scheduler/core/estimate.h"

#include <algorithm>
#include <cmath>

#include "scheduler/core/dex_shape.h"

namespace dex::core {

namespace {

using dex::v1::DexMethod;

constexpr int64_t kFloat = 4;

int64_t kvo_parameters(const dex::v1::Model& m) {
  const int64_t d = m.head_dim();
  const int64_t weights =
      2 * m.kv_heads() * d * m.hidden_size() + m.query_heads() * d * m.hidden_size();
  const int64_t biases =
      (m.attention_bias() ? 2 * m.kv_heads() * d : 0) + (m.output_bias() ? m.hidden_size() : 0);
  return m.layers() * (weights + biases);
}

// Forward, input gradients, and weight gradients of what is trained (performance.md §2), a token.
double flops_per_token(const dex::v1::Model& m, int64_t trained, int64_t length) {
  const double matrices =
      static_cast<double>(m.parameters()) -
      (m.tied_embeddings() ? 0.0 : static_cast<double>(m.vocab_size()) * m.hidden_size());
  const double attention =
      4.0 * (static_cast<double>(length) / 2) * m.query_heads() * m.head_dim() * m.layers();
  return 4.0 * matrices + 2.0 * static_cast<double>(trained) + 3.5 * attention;
}

// What one token of a micro-batch keeps for the backward pass: performance.md §2, fused SwiGLU.
int64_t activation_bytes_per_token(const dex::v1::Model& m) {
  const int64_t d = m.head_dim();
  const int64_t queries_and_keys = (m.query_heads() + m.kv_heads()) * d;
  const int64_t elements =
      3 * m.hidden_size() + (m.qk_norm() ? 3 : 2) * queries_and_keys + 2 * m.intermediate_size();
  return elements * m.layers() * kFloat;
}

int64_t peak_memory(const dex::v1::FineTuningJobSpec& spec, const dex::v1::Model& m,
                    int64_t trained) {
  const auto& hyper = spec.hyperparameters();
  const int64_t micro_tokens =
      static_cast<int64_t>(hyper.micro_batch_size()) * hyper.max_seq_length();
  const int64_t logits_chunk = 160 * m.vocab_size() * kFloat;
  const int64_t runtime = 300 << 20;
  // Base in fp32; weights, gradients and two moments of what is trained.
  return m.parameters() * kFloat + 4 * trained * kFloat +
         micro_tokens * activation_bytes_per_token(m) + logits_chunk + runtime;
}

}  // namespace

ParameterCount count_parameters(const dex::v1::FineTuningJobSpec& spec,
                                const dex::v1::Model& model) {
  ParameterCount count;
  if (spec.has_dex()) count.added = branch_parameters(spec.dex(), model);
  count.trained = count.added;
  if (spec.has_kvo_only() || spec.dex().train() != DexMethod::TRAIN_DEX_ONLY) {
    count.trained += kvo_parameters(model);
  }
  return count;
}

dex::v1::Estimate estimate(const Resolved& resolved, const dex::v1::Model& model,
                           const DeviceFacts& device) {
  const auto& spec = resolved.config.spec();
  const Workload& work = resolved.workload;
  const ParameterCount count = count_parameters(spec, model);

  dex::v1::Estimate out;
  out.set_train_tokens_per_step(work.tokens_per_update);
  out.set_total_steps(work.updates);
  out.set_train_tokens(work.tokens_per_update * work.updates);
  out.set_valid_tokens(std::min<int64_t>(work.validation_tokens, spec.evaluation().max_tokens()));
  const double per_token =
      flops_per_token(model, count.trained, spec.hyperparameters().max_seq_length());
  const double evaluations =
      2.0 + static_cast<double>(work.updates) / std::max(1u, spec.evaluation().every_steps());
  // Evaluation is a forward pass: about 2.3 of the 6.3 units that a trained token costs.
  const double tokens = static_cast<double>(out.train_tokens()) +
                        0.4 * evaluations * static_cast<double>(out.valid_tokens());
  const double start_up = 10.0 + static_cast<double>(model.parameters()) / 50e6;
  out.set_expected_duration_seconds(start_up + tokens * per_token / device.flops_per_second);
  out.set_low_seconds(0.6 * out.expected_duration_seconds());
  out.set_high_seconds(2.5 * out.expected_duration_seconds());

  out.set_trained_parameters(count.trained);
  out.set_added_parameters(count.added);
  // A map over all heads together is as large as the projections (api.md §3).
  const bool light = spec.has_dex() && spec.dex().train() == DexMethod::TRAIN_DEX_ONLY &&
                     projected_width(spec.dex(), model) == model.head_dim();
  out.set_artifact_class(light ? "LIGHT" : "KVO");
  out.set_artifact_bytes(count.trained * kFloat);
  out.set_checkpoint_bytes(3 * count.trained * kFloat);
  out.set_peak_host_memory_bytes(peak_memory(spec, model, count.trained));
  out.set_fits(device.memory_bytes == 0 || out.peak_host_memory_bytes() <= device.memory_bytes);
  out.set_allowed_to_proceed(out.fits());
  if (!out.fits()) {
    out.add_blockers("needs about " + std::to_string(out.peak_host_memory_bytes() >> 20) +
                     " MiB, the largest worker has " + std::to_string(device.memory_bytes >> 20) +
                     " MiB; lower micro_batch_size or max_seq_length");
  }
  for (const auto& warning : resolved.warnings) out.add_warnings(warning);
  *out.mutable_effective_config() = resolved.config;
  return out;
}

}  // namespace dex::core
