#include "worker/model/second_map.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "worker/kernels/philox.h"
#include "worker/model/named_values.h"

namespace dex::model {

namespace {

using at::Tensor;
using Version = SecondMapOptions::Version;

constexpr std::array<std::pair<Version, std::string_view>, 2> kVersions{
    {{Version::kV1, "V1"}, {Version::kV2, "V2"}}};
constexpr uint64_t kSecondMapStreams = 0x64696666ULL << 32;  // "diff"
constexpr double kLambdaDeviation = 0.1;

// Heads of two weights [n·d, D], or biases [n·d], by turns: [2n·d, …].
Tensor interleaved(const Tensor& first, const Tensor& second, int64_t heads) {
  const auto by_head = [heads](const Tensor& x) { return x.unflatten(0, {heads, -1}); };
  return at::stack({by_head(first), by_head(second)}, 1).flatten(0, 2);
}

// Box–Muller on the grid of random_unit.
Tensor normal_vector(int64_t size, uint64_t seed, uint64_t stream, const Tensor& like) {
  const Tensor values = at::empty({size}, at::kDouble);
  auto* data = values.mutable_data_ptr<double>();
  for (int64_t i = 0; i < size; ++i) {
    const auto place = static_cast<uint64_t>(2 * i);
    const double radius = std::sqrt(-2 * std::log(1 - kernels::random_unit(seed, stream, place)));
    const double angle = 2 * std::numbers::pi * kernels::random_unit(seed, stream, place + 1);
    data[i] = kLambdaDeviation * radius * std::cos(angle);
  }
  return values.to(like.scalar_type());
}

void double_queries(SecondMapOptions::Init init, const Config& config, LayerWeights& layer) {
  for (Tensor* tensor : {&layer.q, &layer.q_bias}) {
    if (!tensor->defined()) continue;
    const bool zero = init == SecondMapOptions::Init::kZero;
    *tensor = interleaved(*tensor, zero ? at::zeros_like(*tensor) : *tensor, config.heads);
  }
}

void double_keys(const Config& config, LayerWeights& layer) {
  for (Tensor* tensor : {&layer.k, &layer.k_bias}) {
    if (tensor->defined()) *tensor = interleaved(*tensor, *tensor, config.kv_heads);
  }
}

void add_lambda_vectors(const Config& config, uint64_t seed, uint64_t layer_number,
                        LayerWeights& layer) {
  uint64_t stream = kSecondMapStreams + 4 * layer_number;
  for (Tensor* vector : {&layer.lambda_q1, &layer.lambda_k1, &layer.lambda_q2, &layer.lambda_k2}) {
    *vector = normal_vector(config.head_dim, seed, stream++, layer.q);
  }
}

}  // namespace

std::string_view name(Version value) {
  return name_in(kVersions, value);
}

std::string second_map_problem(const SecondMapOptions& options, const Config& config) {
  if (config.differential()) {
    return "model_type " + config.kind() +
           " subtracts attention maps already: train it with kvo_only, lora, adapter or full";
  }
  if (config.qk_norm && options.init == SecondMapOptions::Init::kZero) {
    return "init ZERO has no usable gradient on a " + config.model_type +
           ", which norms its queries: take init MIRROR";
  }
  return "";
}

Config with_second_map(Config config, Version version) {
  config.attention = version == Version::kV1 ? Attention::kSecondMapV1 : Attention::kSecondMapV2;
  return config;
}

Weights add_second_map(const Weights& base, const Config& base_config,
                       const SecondMapOptions& options, uint64_t seed) {
  Weights out = base;
  for (size_t i = 0; i < out.layers.size(); ++i) {
    LayerWeights& layer = out.layers[i];
    double_queries(options.init, base_config, layer);
    if (options.version == Version::kV1) {
      double_keys(base_config, layer);
      add_lambda_vectors(base_config, seed, i, layer);
    } else {
      layer.lambda_proj =
          at::zeros({base_config.heads, base_config.hidden_size}, layer.q.options());
    }
  }
  return out;
}

}  // namespace dex::model
