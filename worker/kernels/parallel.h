#pragma once

#include <cstdint>
#include <functional>

namespace dex::kernels {

// Runs body(b, e) over disjoint ranges that cover [begin, end), on LibTorch's own pool of
// at::get_num_threads() threads, each range at least `grain` long (but the last); returns when all
// are done. Nested calls and short ranges run on the calling thread. `body` must not throw and must
// not call ATen.
//
// Use this, never at::parallel_for: the latter is a header template that runs serially in code
// compiled without -fopenmp, and -fopenmp would bring a second runtime (performance.md §7).
void parallel_for(int64_t begin, int64_t end, int64_t grain,
                  const std::function<void(int64_t, int64_t)>& body);

}  // namespace dex::kernels
