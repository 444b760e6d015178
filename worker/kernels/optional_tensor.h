#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace dex::kernels {

// Function::apply takes no undefined tensor: one that may be missing travels as an empty one of the
// kind of `like`.
inline at::Tensor packed(const at::Tensor& tensor, const at::Tensor& like) {
  return tensor.defined() ? tensor : at::empty({0}, like.options());
}
inline at::Tensor unpacked(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? at::Tensor() : tensor;
}

}  // namespace dex::kernels
