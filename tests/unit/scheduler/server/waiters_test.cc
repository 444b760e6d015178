#include "scheduler/server/waiters.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <future>
#include <semaphore>

namespace dex::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Long enough for any machine; only a failure waits for it.
constexpr seconds kPatience{30};

TEST(WaitersTest, LooksAtOnceAndAgainAtEachWake) {
  std::counting_semaphore<> looked{0};
  std::atomic<int> looks{0};
  Waiters waiters{hours(1)};  // the period never comes; declared last, so its thread ends first
  waiters.add([&] {
    const bool done = ++looks == 3;
    looked.release();
    return done;
  });
  ASSERT_TRUE(looked.try_acquire_for(kPatience)) << "the first look needs no wake";
  EXPECT_EQ(waiters.waiting(), 1u);
  for (int i = 0; i < 2; ++i) {
    waiters.wake();
    ASSERT_TRUE(looked.try_acquire_for(kPatience));
  }
  waiters.close();
  EXPECT_EQ(looks, 3);
}

TEST(WaitersTest, WhoIsDoneIsForgottenAndItsThingsAreFreed) {
  Waiters waiters{hours(1)};
  auto held = std::make_shared<std::promise<void>>();
  std::weak_ptr<std::promise<void>> watched = held;
  auto asked = held->get_future();
  waiters.add([held] {
    held->set_value();
    return true;
  });
  held.reset();
  ASSERT_EQ(asked.wait_for(kPatience), std::future_status::ready);
  while (waiters.waiting() > 0) std::this_thread::yield();
  EXPECT_TRUE(watched.expired());
}

TEST(WaitersTest, LooksByItselfAsAnotherReplicaWakesNobodyHere) {
  std::promise<void> third;
  int looks = 0;
  Waiters waiters{milliseconds(1)};
  waiters.add([&] {
    if (++looks == 3) third.set_value();
    return looks == 3;
  });
  EXPECT_EQ(third.get_future().wait_for(kPatience), std::future_status::ready);
}

TEST(WaitersTest, AWakeDuringALookIsNotLost) {
  std::promise<void> second;
  int looks = 0;
  Waiters waiters{hours(1)};
  waiters.add([&] {
    if (++looks == 1) waiters.wake();  // the change came just after this look had read the store
    if (looks == 2) second.set_value();
    return looks == 2;
  });
  EXPECT_EQ(second.get_future().wait_for(kPatience), std::future_status::ready);
}

// A thousand changes a second are not a thousand readings of the store.
TEST(WaitersTest, ManyWakesLeaveHalfOfTheTimeToOthers) {
  constexpr int kLooks = 10, kLookMs = 20;
  std::promise<void> last;
  int looks = 0;
  Waiters waiters{hours(1)};
  const auto began = std::chrono::steady_clock::now();
  waiters.add([&] {
    waiters.wake();  // there is always somebody who does
    ::poll(nullptr, 0, kLookMs);
    if (++looks == kLooks) last.set_value();
    return looks == kLooks;
  });
  ASSERT_EQ(last.get_future().wait_for(kPatience), std::future_status::ready);
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(took, (2 * kLooks - 2) * milliseconds(kLookMs)) << "ten looks and nine rests as long";
}

TEST(WaitersTest, CloseEndsWaitingAndRefusesLaterOnes) {
  std::counting_semaphore<> looked{0};
  Waiters waiters{hours(1)};
  waiters.add([&] {
    looked.release();
    return false;
  });
  ASSERT_TRUE(looked.try_acquire_for(kPatience));
  waiters.close();
  EXPECT_EQ(waiters.waiting(), 0u);
  waiters.add([&]() -> bool {
    ADD_FAILURE() << "asked after close";
    return true;
  });
  EXPECT_EQ(waiters.waiting(), 0u);
}

}  // namespace
}  // namespace dex::server
