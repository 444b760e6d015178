#include "worker/serve/kv_pool.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace dex::serve {
namespace {

int64_t stride(const kernels::KvLayout& layout) {
  return (layout.block_bytes() + 63) / 64 * 64;
}

}  // namespace

int64_t KvPool::block_bytes(const kernels::KvLayout& layout, int64_t layers) {
  return stride(layout) * layers;
}

KvPool::KvPool(const kernels::KvLayout& layout, int64_t layers, int64_t blocks)
    : layout_(layout), layers_(layers), blocks_(blocks), stride_(stride(layout)) {
  void* memory = mmap(nullptr, static_cast<size_t>(bytes()), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::runtime_error("[kv_pool] no address space for " + std::to_string(bytes()) +
                             " bytes of KV cache: " + std::strerror(errno));
  }
  memory_ = static_cast<char*>(memory);
  madvise(memory_, static_cast<size_t>(bytes()),
          MADV_HUGEPAGE);  // a hint: fewer TLB misses on long contexts
}

KvPool::~KvPool() {
  munmap(memory_, static_cast<size_t>(bytes()));
}

}  // namespace dex::serve
