#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>

#include "services/base/bounded_queue.h"
#include "services/base/thread_pool.h"
#include "tests/support/eventually.h"

namespace dex::base {
namespace {

using support::kPatience_ms;

TEST(BoundedQueueTest, KeepsOrderAndBound) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.try_push(1));
  EXPECT_TRUE(queue.try_push(2));
  EXPECT_FALSE(queue.try_push(3));
  EXPECT_FALSE(queue.push(3, 1));
  EXPECT_EQ(queue.pop(0), 1);
  EXPECT_EQ(queue.pop(0), 2);
  EXPECT_EQ(queue.pop(1), std::nullopt);
}

TEST(BoundedQueueTest, AnItemThatDidNotFitStaysWithTheCaller) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  EXPECT_TRUE(queue.try_push(std::make_unique<int>(1)));
  auto item = std::make_unique<int>(2);
  EXPECT_FALSE(queue.try_push(std::move(item)));
  EXPECT_NE(item, nullptr);  // NOLINT(bugprone-use-after-move): the contract under test
}

TEST(BoundedQueueTest, CloseWakesWaitersAndKeepsWhatIsInside) {
  BoundedQueue<int> queue(1);
  auto popper = std::async(std::launch::async, [&] { return queue.pop(kPatience_ms); });
  EXPECT_TRUE(queue.push(1, kPatience_ms));
  EXPECT_EQ(popper.get(), 1);
  EXPECT_TRUE(queue.try_push(2));
  auto pusher = std::async(std::launch::async, [&] { return queue.push(3, kPatience_ms); });
  queue.close();
  EXPECT_FALSE(pusher.get());
  EXPECT_EQ(queue.pop(0), 2);
  EXPECT_EQ(queue.pop(kPatience_ms), std::nullopt);
}

TEST(BoundedQueueTest, StopWakesAPopper) {
  BoundedQueue<int> queue(1);
  std::stop_source stop;
  auto popper =
      std::async(std::launch::async, [&] { return queue.pop(kPatience_ms, stop.get_token()); });
  stop.request_stop();
  EXPECT_EQ(popper.get(), std::nullopt);
}

TEST(ThreadPoolTest, RunsAllThatWasAcceptedAndRefusesWhenFull) {
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  std::atomic<int> ran = 0;
  int accepted = 0;
  {
    ThreadPool pool({.threads = 1, .queue_capacity = 3, .name = "test"});
    for (int i = 0; i < 10; ++i) {
      if (pool.try_post([&, opened] {
            opened.wait();
            ++ran;
          })) {
        ++accepted;
      }
    }
    EXPECT_GE(accepted, 3);
    EXPECT_LE(accepted, 4) << "one running, three queued";
    gate.set_value();
  }
  EXPECT_EQ(ran, accepted);
}

TEST(ThreadPoolTest, CloseEndsWhatIsQueuedAndTakesNoMore) {
  std::atomic<int> ran = 0;
  ThreadPool pool({.threads = 2, .queue_capacity = 100, .name = "test"});
  for (int i = 0; i < 100; ++i) {
    while (!pool.try_post([&] { ++ran; })) {
    }
  }
  pool.close();
  EXPECT_EQ(ran, 100);
  EXPECT_FALSE(pool.try_post([&] { ++ran; }));
  pool.close();
  EXPECT_EQ(ran, 100);
}

}  // namespace
}  // namespace dex::base
