#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/kernels/paged_attention.h"

namespace dex::serve {

// The memory of the KV cache: for each layer `blocks` blocks of kernels::KvLayout, zero at first.
// Address space is taken at once, memory only as blocks are written to. Not thread-safe; different
// blocks are.
class KvPool {
 public:
  KvPool(const kernels::KvLayout& layout, int64_t layers, int64_t blocks);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  [[nodiscard]] void* block(int64_t layer, int32_t index) const {
    return memory_ + (layer * blocks_ + index) * stride_;
  }
  [[nodiscard]] const kernels::KvLayout& layout() const { return layout_; }
  [[nodiscard]] int64_t blocks() const { return blocks_; }
  [[nodiscard]] int64_t stride_bytes() const { return stride_; }  // from block to block of a layer
  [[nodiscard]] int64_t bytes() const { return layers_ * blocks_ * stride_; }

  // Bytes of one block of all layers together.
  static int64_t block_bytes(const kernels::KvLayout& layout, int64_t layers);

 private:
  kernels::KvLayout layout_;
  int64_t layers_;
  int64_t blocks_;
  int64_t stride_;  // bytes from block to block, a multiple of a cache line
  char* memory_ = nullptr;
};

}  // namespace dex::serve
