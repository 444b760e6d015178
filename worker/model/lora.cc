#include "worker/model/lora.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "worker/kernels/parallel.h"
#include "worker/kernels/philox.h"
#include "worker/model/random_start.h"

namespace dex::model {

namespace {

constexpr uint64_t kPlacesAPass = uint64_t{1} << 14;  // linears of the deepest model, rounded up
constexpr int64_t kWordsABlock = 4, kBlocksAThread = 4096;

// 1/(1 − dropout) where word ≥ dropout·2³², else 0.
at::Tensor keep_mask(at::IntArrayRef shape, double dropout, const Noise& noise, uint64_t place) {
  at::Tensor mask = at::empty(shape, at::kFloat);
  auto* data = mask.mutable_data_ptr<float>();
  const int64_t count = mask.numel();
  const uint64_t stream = noise.pass * kPlacesAPass + place;
  const auto limit = static_cast<uint32_t>(dropout * 0x1p32);
  const auto kept = static_cast<float>(1 / (1 - dropout));
  kernels::parallel_for(
      0, (count + kWordsABlock - 1) / kWordsABlock, kBlocksAThread, [=](int64_t b, int64_t e) {
        for (int64_t block = b; block < e; ++block) {
          const auto words = kernels::philox(
              {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
               static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
              {static_cast<uint32_t>(noise.seed), static_cast<uint32_t>(noise.seed >> 32)});
          const int64_t first = block * kWordsABlock;
          for (int64_t i = 0; i < kWordsABlock && first + i < count; ++i)
            data[first + i] = words[static_cast<size_t>(i)] >= limit ? kept : 0.0F;
        }
      });
  return mask;
}

}  // namespace

std::string lora_key(int64_t layer, Linear linear, char factor) {
  return "model.layers." + std::to_string(layer) + "." + std::string(path(linear)) + ".lora_" +
         factor + ".weight";
}

LoraTensors initial_lora(const LoraOptions& options, const Config& config, int64_t layer,
                         uint64_t seed) {
  LoraTensors terms;
  for (const Linear linear : options.targets) {
    const LinearShape shape = shape_of(linear, config);
    const uint64_t stream = kLoraStreams + static_cast<uint64_t>(layer) * kLinears.size() +
                            static_cast<uint64_t>(linear);
    const double bound = 1 / std::sqrt(static_cast<double>(shape.in));
    terms[linear] = {random_start({options.r, shape.in}, bound, seed, stream),
                     at::zeros({shape.out, options.r}, at::kFloat),
                     lora_scale(options.alpha, options.r, options.rslora)};
  }
  return terms;
}

at::Tensor drop_out(const at::Tensor& x, double dropout, const std::optional<Noise>& noise,
                    uint64_t place) {
  if (dropout == 0 || !noise) return x;
  return x * keep_mask(x.sizes(), dropout, *noise, place).to(x.scalar_type());
}

at::Tensor merged(const at::Tensor& weight, const LowRank& term) {
  const at::NoGradGuard no_grad;
  const auto type = weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor wide = weight.detach().to(type);
  if (!term.defined()) return wide;
  return at::addmm(wide, term.b.to(type), term.a.to(type), 1, term.scale);
}

}  // namespace dex::model
