#include "worker/serve/weight_storage.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "worker/kernels/linear_int4.h"
#include "worker/kernels/linear_panels.h"
#include "worker/kernels/quantize.h"

namespace dex::serve {
namespace {

using kernels::Number;
using kernels::WeightView;

at::Tensor kernel_type(const at::Tensor& tensor, Keep keep) {
  at::Tensor kept = tensor.contiguous();
  if (kept.scalar_type() != at::kFloat && kept.scalar_type() != at::kBFloat16)
    kept = kept.to(at::kFloat);
  if (keep == Keep::kBf16 && kept.scalar_type() == at::kFloat) kept = kept.to(at::kBFloat16);
  return kept;
}

WeightView rows_of(const at::Tensor& kept) {
  return {kept.const_data_ptr(), kept.scalar_type() == at::kFloat ? Number::kF32 : Number::kBf16,
          kept.dim() == 2 ? kept.size(0) : 1, kept.size(-1)};
}

at::Tensor widened(const at::Tensor& tensor, int64_t first, int64_t end) {
  return tensor.narrow(0, first, end - first).to(at::kFloat).contiguous();
}

}  // namespace

WeightView WeightStorage::view(const at::Tensor& tensor, Keep keep) {
  if (!tensor.defined()) return {};
  if (keep == Keep::kInt8) return int8_rows(tensor);
  at::Tensor kept = kernel_type(tensor, keep);
  const WeightView view = rows_of(kept);
  bytes_ += static_cast<int64_t>(kept.nbytes());
  if (kept.const_data_ptr() != tensor.const_data_ptr()) copied_.push_back(tensor);
  tensors_.push_back(std::move(kept));
  return view;
}

WeightView WeightStorage::linear(const at::Tensor& tensor, Keep keep) {
  if (!tensor.defined()) return {};
  const bool stays = !panels_ && keep != Keep::kInt8 && keep != Keep::kInt4;
  if (!stays) copied_.push_back(tensor);
  if (keep == Keep::kInt8) return int8_panels(tensor);
  if (keep == Keep::kInt4) return int4_blocks(tensor);
  if (stays) return view(tensor, keep);
  const at::Tensor kept = kernel_type(tensor, keep);
  WeightView out = rows_of(kept);
  void* panels = take_panels(out);
  in_parts(out.rows, [kept, in_rows = out, panels](int64_t first, int64_t end) {
    kernels::pack_panels(in_rows, first, end, panels);
  });
  out.data = panels;
  out.panels = true;
  return out;
}

std::vector<at::Tensor> WeightStorage::finish(int threads) {
  std::atomic<size_t> next = 0;
  std::exception_ptr error;
  std::mutex mutex;
  const auto work = [&] {
    const at::InferenceMode inference;
    for (size_t i; (i = next++) < filling_.size();) {
      try {
        filling_[i]();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
    work();
  }
  filling_.clear();
  if (error) std::rethrow_exception(error);
  // A tied head is the embedding too, whose rows are looked up where they lie.
  std::erase_if(copied_, [this](const at::Tensor& copied) {
    return std::ranges::any_of(tensors_, [&](const at::Tensor& kept) {
      return kept.const_data_ptr() == copied.const_data_ptr();
    });
  });
  return std::exchange(copied_, {});
}

// fill(first row, end), later, for some rows at a time: threads share a large head, and widening it
// at once would double the peak. Parts are whole blocks of every order.
template <typename Fill>
void WeightStorage::in_parts(int64_t rows, const Fill& fill) {
  constexpr int64_t kRows = 2048;
  static_assert(kRows % kernels::kInt4Outputs == 0 && kRows % kernels::kPanelOutputs == 0);
  for (int64_t n = 0; n < rows; n += kRows)
    filling_.emplace_back([fill, n, end = std::min(rows, n + kRows)] { fill(n, end); });
}

void* WeightStorage::take_panels(const WeightView& w) {
  const int64_t size = kernels::panel_elements(w.rows, w.columns) * kernels::bytes_of(w.number);
  bytes_ += size;
  return arena_.take(size);
}

WeightView WeightStorage::int8_rows(const at::Tensor& tensor) {
  const int64_t rows = tensor.size(0), columns = tensor.size(1);
  auto* q = arena_.take_array<int8_t>(rows * columns);
  auto* scales = arena_.take_array<float>(rows);
  in_parts(rows, [=](int64_t first, int64_t end) {
    kernels::quantize_rows(widened(tensor, first, end).const_data_ptr<float>(), end - first,
                           columns, q + first * columns, scales + first);
  });
  bytes_ += rows * columns + rows * static_cast<int64_t>(sizeof(float));
  return {q, Number::kInt8, rows, columns, scales};
}

WeightView WeightStorage::int8_panels(const at::Tensor& tensor) {
  const int64_t rows = tensor.size(0), columns = tensor.size(1);
  auto* scales = arena_.take_array<float>(rows);
  WeightView out{nullptr, Number::kInt8, rows, columns, scales, true};
  auto* panels = static_cast<int8_t*>(take_panels(out));
  in_parts(rows, [=](int64_t first, int64_t end) {
    std::vector<int8_t> part(static_cast<size_t>((end - first) * columns));
    kernels::quantize_rows(widened(tensor, first, end).const_data_ptr<float>(), end - first,
                           columns, part.data(), scales + first);
    kernels::pack_panels({part.data(), Number::kInt8, end - first, columns}, 0, end - first,
                         panels + first * columns);
  });
  bytes_ += rows * static_cast<int64_t>(sizeof(float));
  out.data = panels;
  return out;
}

WeightView WeightStorage::int4_blocks(const at::Tensor& tensor) {
  const int64_t rows = tensor.size(0), columns = tensor.size(1);
  const int64_t groups = kernels::int4_groups(columns), all = kernels::int4_blocks(rows, columns);
  auto* blocks = arena_.take_array<kernels::Int4Block>(all);
  in_parts(rows, [=](int64_t first, int64_t end) {
    kernels::quantize_int4(widened(tensor, first, end).const_data_ptr<float>(), end - first,
                           columns, blocks + first / kernels::kInt4Outputs * groups);
  });
  bytes_ += all * static_cast<int64_t>(sizeof(kernels::Int4Block));
  return {blocks, Number::kInt4, rows, columns};
}

}  // namespace dex::serve
