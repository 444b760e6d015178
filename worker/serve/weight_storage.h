#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "worker/kernels/weight_view.h"
#include "worker/serve/weight_arena.h"

namespace dex::serve {

// What a weight becomes for the kernels: as stored (types that they do not read are widened), fp32
// rounded to bf16, or quantised.
enum class Keep { kAsStored, kBf16, kInt8, kInt4 };

// Keeps the bytes of weights alive and gives views of them in a type and an order that the kernels
// read. A view may be read once finish() has run, and as long as this object lives. An undefined
// tensor gives a view without data. One thread.
class WeightStorage {
 public:
  // With `panels` linears that are not quantised are copied into panels (kernels/linear_panels.h);
  // without, what needs no other type stays where it is.
  explicit WeightStorage(bool panels) : panels_(panels) {}

  // Row by row; not kInt4.
  kernels::WeightView view(const at::Tensor& tensor, Keep keep);
  // A linear's weight [out, in], in the order that its kernel likes best.
  kernels::WeightView linear(const at::Tensor& tensor, Keep keep);

  // Fills what was promised since the last time, on so many threads, the caller's counted. Rethrows
  // the first error of any. What it answers was given since then and is read no more: it became
  // panels, was quantised, or has another type now.
  std::vector<at::Tensor> finish(int threads);

  // Of all views, mapped ones included.
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  template <typename Fill>
  void in_parts(int64_t rows, const Fill& fill);
  void* take_panels(const kernels::WeightView& w);
  kernels::WeightView int8_rows(const at::Tensor& tensor);
  kernels::WeightView int8_panels(const at::Tensor& tensor);
  kernels::WeightView int4_blocks(const at::Tensor& tensor);

  bool panels_;
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> copied_;
  std::vector<std::function<void()>> filling_;
  WeightArena arena_;
  int64_t bytes_ = 0;
};

}  // namespace dex::serve
