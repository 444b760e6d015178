#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dex::model {

// U(−bound, bound) in fp32, a function of its arguments alone: the start of trained tensors. Each
// tensor of each layer has a stream of its own, so that no option moves another's numbers.
at::Tensor random_start(at::IntArrayRef shape, double bound, uint64_t seed, uint64_t stream);

// Where the streams of a family begin: "dex" is in dex_branch.cc.
inline constexpr uint64_t kLoraStreams = 0x6c6f7261ULL << 32;        // "lora"
inline constexpr uint64_t kBottleneckStreams = 0x61647074ULL << 32;  // "adpt"

}  // namespace dex::model
