#include "services/rpc/timer.h"

#include <gtest/gtest.h>

#include <future>

namespace dex::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(TimerTest, CallsInOrderOfTime) {
  std::vector<int> order;
  std::promise<void> last;
  Timer timer;
  const auto now = steady_clock::now();
  timer.at(now + milliseconds(30), [&] {
    order.push_back(2);
    last.set_value();
  });
  timer.at(now + milliseconds(10), [&] { order.push_back(1); });
  ASSERT_EQ(last.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_GE(steady_clock::now(), now + milliseconds(30));
}

TEST(TimerTest, CancelledIsNotCalled) {
  bool called = false;
  std::promise<void> later;
  Timer timer;
  const auto now = steady_clock::now();
  timer.cancel(timer.at(now + milliseconds(5), [&] { called = true; }));
  timer.at(now + milliseconds(10), [&] { later.set_value(); });
  ASSERT_EQ(later.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_FALSE(called);
}

TEST(TimerTest, DestructionDropsWhatWaits) {
  bool called = false;
  {
    Timer().at(steady_clock::now() + std::chrono::hours(1), [&] { called = true; });
  }
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace dex::rpc
