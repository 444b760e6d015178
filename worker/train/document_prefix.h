#pragma once

#include <memory>

#include "worker/model/llama.h"
#include "worker/train/prefix_entries.h"
#include "worker/train/prefix_store.h"

namespace dex::train {

// What enters the first layer that a job adapts, document by document: from the cache where it is
// there, else computed and put there. A document is always computed by itself, with a cache and
// without one: products of other sizes round otherwise, and a document that comes back in another
// pack must find what it would compute. So a hit is a miss to the bit. fp32, as the trainer
// computes. One thread.
class DocumentPrefix final : public model::FrozenPrefix {
 public:
  // `llama` outlives this object; `key.layers` ≥ 1 of its layers; without a store nothing is kept.
  DocumentPrefix(const model::Llama& llama, PrefixKey key, std::unique_ptr<PrefixStore> store);

  [[nodiscard]] int64_t layers() const override { return key_.layers; }
  // Of batches made by model::pack: each document's positions count from 0.
  [[nodiscard]] at::Tensor entering(const model::Batch& batch) const override;

  const PrefixStore* store() const { return store_.get(); }  // null: none

 private:
  const model::Llama& llama_;
  PrefixKey key_;
  std::unique_ptr<PrefixStore> store_;
};

}  // namespace dex::train
