#include "worker/kernels/parallel.h"

#include <ATen/Parallel.h>

#include <algorithm>

// GCC's OpenMP entry points (stable ABI of libgomp.so.1, which libtorch_cpu loads). Calling them by
// name joins the pool that ATen's own loops and MKL use, without compiling anything with -fopenmp.
extern "C" {
void GOMP_parallel(void (*function)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
}

namespace dex::kernels {

namespace {

struct Task {
  int64_t begin, end, grain;
  const std::function<void(int64_t, int64_t)>* body;
};

// One thread's share: equal ranges, rounded up to whole grains.
void run_share(void* data) {
  const Task& task = *static_cast<const Task*>(data);
  const int64_t threads = omp_get_num_threads();
  const int64_t grains = (task.end - task.begin + task.grain - 1) / task.grain;
  const int64_t share = (grains + threads - 1) / threads * task.grain;
  const int64_t begin = task.begin + omp_get_thread_num() * share;
  if (begin < task.end) (*task.body)(begin, std::min(task.end, begin + share));
}

}  // namespace

void parallel_for(int64_t begin, int64_t end, int64_t grain,
                  const std::function<void(int64_t, int64_t)>& body) {
  if (begin >= end) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t threads =
      std::min<int64_t>(at::get_num_threads(), (end - begin + grain - 1) / grain);
  if (threads <= 1 || at::in_parallel_region()) return body(begin, end);
  Task task{begin, end, grain, &body};
  GOMP_parallel(run_share, &task, static_cast<unsigned>(threads), 0);
}

}  // namespace dex::kernels
