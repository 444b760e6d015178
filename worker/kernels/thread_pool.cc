#include "worker/kernels/thread_pool.h"

#include <chrono>
#include <stdexcept>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dex::kernels {
namespace {

constexpr int kTaskBits = 20;
constexpr uint64_t kTaskMask = (uint64_t{1} << kTaskBits) - 1;
// Of the caller, before it gives its core away.
constexpr int kSpins = 1000;
// Of the others: longer than the gap between two regions and than what lies between two steps
// (choosing tokens, handing them out), so that only the first step after a pause wakes anybody;
// short enough to leave the core to others. In time: a pause is 40 cycles here and 140 there.
constexpr auto kSpin = std::chrono::microseconds(200);
constexpr int kSpinsAtOnce = 64;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

uint64_t region(uint64_t ticket) {
  return ticket >> (2 * kTaskBits);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads < 1) {
    throw std::runtime_error("[thread_pool] threads must be ≥ 1, got " + std::to_string(threads));
  }
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { loop(i); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  ticket_ += uint64_t{1} << (2 * kTaskBits);  // an empty region wakes everybody
  ticket_.notify_all();
}

void ThreadPool::run_tasks(int tasks, Function function, void* context) {
  if (tasks <= 0) return;
  if (static_cast<uint64_t>(tasks) > kTaskMask) {
    throw std::runtime_error("[thread_pool] at most 2^20 - 1 tasks, got " + std::to_string(tasks));
  }
  if (workers_.empty() || tasks == 1) {
    for (int i = 0; i < tasks; ++i) function(context, i, 0);
    return;
  }
  function_ = function;
  context_ = context;
  unfinished_.store(tasks, std::memory_order_relaxed);
  const uint64_t next = (region(ticket_.load(std::memory_order_relaxed)) + 1) << (2 * kTaskBits);
  ticket_.store(next | static_cast<uint64_t>(tasks) << kTaskBits, std::memory_order_release);
  ticket_.notify_all();
  work(0);
  // Tasks begun by others are still running: short, unless their thread lost its core. Then leave
  // ours to it.
  for (int spins = 0; unfinished_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

bool ThreadPool::claim(int* task) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while ((ticket & kTaskMask) < ((ticket >> kTaskBits) & kTaskMask)) {
    if (ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) {
      *task = static_cast<int>(ticket & kTaskMask);
      return true;
    }
  }
  return false;
}

void ThreadPool::work(int thread) {
  for (int task; claim(&task);) {
    function_(context_, task, thread);
    unfinished_.fetch_sub(1, std::memory_order_release);
  }
}

uint64_t ThreadPool::await_region(uint64_t seen) const {
  const auto until = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int spins = 0; spins < kSpinsAtOnce; ++spins) {
      const uint64_t ticket = ticket_.load(std::memory_order_acquire);
      if (region(ticket) != region(seen)) return ticket;
      relax();
    }
  } while (std::chrono::steady_clock::now() < until);
  for (;;) {
    const uint64_t ticket = ticket_.load(std::memory_order_acquire);
    if (region(ticket) != region(seen)) return ticket;
    ticket_.wait(ticket);  // also returns when a task was claimed; then it looks again
  }
}

void ThreadPool::loop(int thread) {
  uint64_t seen = 0;
  for (;;) {
    seen = await_region(seen);
    if (stop_) return;
    work(thread);
  }
}

}  // namespace dex::kernels
