#include "worker/model/rope_frequencies.h"

#include <cmath>
#include <numbers>

namespace dex::model {

namespace {

float llama3(float frequency, const RopeScaling& scaling) {
  const auto factor = static_cast<float>(scaling.factor);
  const auto original = static_cast<double>(scaling.original_max_position_embeddings);
  const float wave = static_cast<float>(2 * std::numbers::pi) / frequency;  // in tokens
  if (wave > static_cast<float>(original / scaling.low_freq_factor)) return frequency / factor;
  if (wave < static_cast<float>(original / scaling.high_freq_factor)) return frequency;
  const float turns = static_cast<float>(original) / wave;
  const float share = (turns - static_cast<float>(scaling.low_freq_factor)) /
                      static_cast<float>(scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - share) * frequency / factor + share * frequency;
}

}  // namespace

std::vector<float> rope_frequencies(const Config& config) {
  std::vector<float> frequencies(static_cast<size_t>(config.head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    float frequency = 1.0F / std::pow(static_cast<float>(config.rope_theta), exponent);
    switch (config.rope_scaling.type) {
      case RopeScaling::Type::kNone:
        break;
      case RopeScaling::Type::kLinear:
        frequency /= static_cast<float>(config.rope_scaling.factor);
        break;
      case RopeScaling::Type::kLlama3:
        frequency = llama3(frequency, config.rope_scaling);
        break;
    }
    frequencies[i] = frequency;
  }
  return frequencies;
}

}  // namespace dex::model
