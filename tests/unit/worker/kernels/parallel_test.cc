#include "worker/kernels/parallel.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace dex::kernels {
namespace {

TEST(ParallelForTest, VisitsEachIndexOnce) {
  for (const int threads : {1, 2, 4}) {
    at::set_num_threads(threads);
    for (const int64_t count : {0, 1, 7, 64, 1000}) {
      for (const int64_t grain : {1, 16, 5000}) {
        std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
        parallel_for(0, count, grain, [&](int64_t b, int64_t e) {
          for (int64_t i = b; i < e; ++i) ++visits[static_cast<size_t>(i)];
        });
        for (const auto& v : visits)
          ASSERT_EQ(v.load(), 1) << threads << " threads, " << count << "/" << grain;
      }
    }
  }
}

TEST(ParallelForTest, UsesSeveralThreadsOfTheSharedPool) {
  at::set_num_threads(2);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  parallel_for(0, 2, 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(seen.size(), 2U);
}

TEST(ParallelForTest, ANestedCallRunsInItsThread) {
  at::set_num_threads(2);
  std::atomic<int> total{0};
  parallel_for(0, 2, 1, [&](int64_t, int64_t) {
    const auto outer = std::this_thread::get_id();
    parallel_for(0, 8, 1, [&](int64_t b, int64_t e) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      total += static_cast<int>(e - b);
    });
  });
  EXPECT_EQ(total.load(), 16);
}

}  // namespace
}  // namespace dex::kernels
