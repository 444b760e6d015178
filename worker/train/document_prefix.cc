#include "worker/train/document_prefix.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <span>
#include <utility>
#include <vector>

namespace dex::train {

DocumentPrefix::DocumentPrefix(const model::Llama& llama, PrefixKey key,
                               std::unique_ptr<PrefixStore> store)
    : llama_(llama), key_(std::move(key)), store_(std::move(store)) {}

at::Tensor DocumentPrefix::entering(const model::Batch& batch) const {
  const at::NoGradGuard no_grad;
  const int64_t width = llama_.config().hidden_size;
  at::Tensor out = at::empty({batch.tokens.size(0), width}, at::kFloat);
  const at::Tensor tokens = batch.tokens.contiguous();
  const auto* ids = tokens.const_data_ptr<int64_t>();
  auto* rows = out.mutable_data_ptr<float>();
  for (size_t i = 0; i + 1 < batch.bounds.size(); ++i) {
    const int64_t begin = batch.bounds[i], count = batch.bounds[i + 1] - begin;
    const std::span document(ids + begin, static_cast<size_t>(count));
    const std::span content(reinterpret_cast<char*>(rows + begin * width),
                            static_cast<size_t>(count * width) * sizeof(float));
    const std::string name = store_ ? prefix_entry_name(key_, document) : std::string();
    if (store_ && store_->read(name, content)) continue;
    std::vector<std::vector<int64_t>> alone(1);
    alone[0].assign(document.begin(), document.end());
    out.narrow(0, begin, count).copy_(llama_.entering(key_.layers, model::pack(alone)));
    if (store_) store_->write(name, {content.data(), content.size()});
  }
  return out;
}

}  // namespace dex::train
