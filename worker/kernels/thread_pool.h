#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace dex::kernels {

// Threads for the engine's short parallel regions: a decode step has about 150 of them, each 20–100
// µs. The caller works too and waits only for tasks that another thread has begun, never for a
// thread to wake up: a core that is busy with something else costs speed, not a stall
// (performance.md §0, rule 9). It is the engine's only pool: at's parallel_for runs in one thread
// unless the caller is compiled with -fopenmp, which we never do. One thread calls run(), always
// the same or one after another; tasks may not call it.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // ≥ 1, the caller counted; threads − 1 are started
  ~ThreadPool();                     // joins
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs task(i, thread) for i in [0, tasks), in any order, and returns when all are done; `thread`
  // in [0, threads()) tells which scratch memory is free to use. At most 2²⁰ − 1 tasks. A task must
  // not throw.
  template <typename Task>
  void run(int tasks, Task&& task) {
    using Plain = std::remove_reference_t<Task>;
    run_tasks(
        tasks, [](void* context, int i, int thread) { (*static_cast<Plain*>(context))(i, thread); },
        const_cast<void*>(static_cast<const void*>(&task)));
  }

 private:
  using Function = void (*)(void*, int, int);

  void run_tasks(int tasks, Function function, void* context);
  void work(int thread);  // takes tasks until none is left
  bool claim(int* task);  // the next task of the current region, if there is one
  void loop(int thread);  // of a started thread
  uint64_t await_region(
      uint64_t seen) const;  // the first ticket that differs from `seen` in its region

  // Region number (24 bits) | tasks (20) | next task (20), in one word: a thread that comes late
  // either claims a task of the region that is running or none, whatever the caller is doing.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int> unfinished_{0};
  Function function_ = nullptr;  // of the current region; read only with a claimed task
  void* context_ = nullptr;
  std::atomic<bool> stop_{false};
  std::vector<std::jthread> workers_;
};

}  // namespace dex::kernels
