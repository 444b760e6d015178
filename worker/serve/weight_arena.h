#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace dex::serve {

// Memory for weights that the engine makes at load, in the order in which a step reads them, in
// pages of 2 MiB where the kernel has them: a guest pays for each miss of the TLB twice, and a
// decode step reads each 4 KiB page of the weights once (performance.md §2). Freed as a whole. What
// is taken and not written to takes no memory. Not thread-safe.
class WeightArena {
 public:
  WeightArena() = default;
  ~WeightArena();
  WeightArena(const WeightArena&) = delete;
  WeightArena& operator=(const WeightArena&) = delete;

  // `bytes` of zeros, aligned to a cache line. Throws "[weight_arena] …" when there is no address
  // space.
  void* take(int64_t bytes);
  template <typename T>
  T* take_array(int64_t count) {
    return static_cast<T*>(take(count * static_cast<int64_t>(sizeof(T))));
  }

 private:
  std::vector<std::pair<char*, int64_t>> mappings_;  // start, bytes
  char* next_ = nullptr;                             // in the last mapping
  int64_t left_ = 0;
};

}  // namespace dex::serve
