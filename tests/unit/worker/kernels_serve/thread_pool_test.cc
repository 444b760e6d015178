#include "worker/kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace dex::kernels {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int tasks = 0; tasks < 300; ++tasks) {
      std::vector<std::atomic<int>> runs(tasks);
      std::atomic<int> strangers{0};
      pool.run(tasks, [&](int i, int thread) {
        ++runs[i];
        if (thread < 0 || thread >= threads) ++strangers;
      });
      for (int i = 0; i < tasks; ++i)
        ASSERT_EQ(runs[i], 1) << threads << " threads, task " << i << " of " << tasks;
      ASSERT_EQ(strangers, 0);
    }
  }
}

// Regions follow each other faster than threads leave the last one.
TEST(ThreadPool, SurvivesManyShortRegions) {
  ThreadPool pool(4);
  int64_t plain =
      0;  // written by one task at a time: a race would show under a sanitizer and in the sum
  for (int region = 0; region < 20000; ++region) {
    std::atomic<int64_t> sum{0};
    pool.run(3, [&](int i, int) { sum += i; });
    plain += sum;
  }
  EXPECT_EQ(plain, 20000 * 3);
}

TEST(ThreadPool, RefusesNoThreads) {
  EXPECT_THROW(ThreadPool(0), std::runtime_error);
}

}  // namespace
}  // namespace dex::kernels
