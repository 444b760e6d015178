#include "worker/serve/weight_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace dex::serve {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kPage = int64_t{2} << 20;
constexpr int64_t kMapping = int64_t{64} << 20;

int64_t round_up(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

WeightArena::~WeightArena() {
  for (const auto& [start, bytes] : mappings_) munmap(start, static_cast<size_t>(bytes));
}

void* WeightArena::take(int64_t bytes) {
  const int64_t needed = round_up(std::max<int64_t>(bytes, 1), kLine);
  if (needed > left_) {
    // One page more, so that the first byte can lie at a large page's start.
    const int64_t size = std::max(kMapping, round_up(needed, kPage)) + kPage;
    void* start = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) {
      throw std::runtime_error("[weight_arena] no address space for " + std::to_string(size) +
                               " bytes of weights: " + std::strerror(errno));
    }
    mappings_.emplace_back(static_cast<char*>(start), size);
    const auto at = reinterpret_cast<uintptr_t>(start);
    const auto skipped = static_cast<int64_t>((kPage - at % kPage) % kPage);
    next_ = static_cast<char*>(start) + skipped;
    left_ = size - skipped;
    madvise(next_, static_cast<size_t>(left_), MADV_HUGEPAGE);  // a hint, as in KvPool
  }
  void* taken = next_;
  next_ += needed;
  left_ -= needed;
  return taken;
}

}  // namespace dex::serve
