// Reconcile in parts: whoever does it has other things to do in between (server/sweeper.h).
#include "scheduler/store/reconciler.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "tests/integration/scheduler_store/store_fixture.h"

namespace dex::store {
namespace {

class ReconcileTest : public StoreTest {
 protected:
  static constexpr int kJobs = 250;

  ReconcileTest() {
    EXPECT_TRUE(store_->set_tenant("default", 1, 1000, 2, 0).ok());
    for (int i = 0; i < kJobs; ++i) ids_.push_back(submit());
  }
  // Four members that are missing or do not belong.
  void disorder() {
    server().call({"ZREM", store_->key("ready:cpu"), ids_[3]});
    server().call({"ZREM", store_->key("tjobs:default"), ids_[kJobs - 1]});
    server().call({"ZADD", store_->key("paused"), "1", ids_[7]});
    server().call({"ZADD", store_->key("fileuse:file-1"), "1", "ftjob-ghost"});
  }

  std::vector<std::string> ids_;
};

TEST_F(ReconcileTest, EachPartIsAFewRoundTripsAndAllOfThemAreTheWhole) {
  disorder();
  int calls = 0;
  Store::Options options;
  options.redis.address = server().address();
  options.redis.observe = [&calls](std::string_view, double, std::string_view) { ++calls; };
  options.clock_ms = [this] { return clock_.now_ms(); };
  Store counted(options);
  Reconciler reconciler(counted);
  for (const int64_t wrong : {4, 0}) {  // the second time it begins anew
    int64_t fixes = 0;
    int parts = 0, most = 0;
    for (bool done = false; !done; ++parts) {
      calls = 0;
      const auto part = reconciler.step();
      ASSERT_TRUE(part.ok()) << part.status().to_string();
      most = std::max(most, calls);
      fixes += part->fixes;
      done = part->done;
    }
    EXPECT_EQ(fixes, wrong);
    EXPECT_LE(most, 6);
    EXPECT_GT(parts, 20);
  }
}

// After an outage the place that it had come to says nothing.
TEST_F(ReconcileTest, BeginsAnewAfterAFailure) {
  Store::Options options;
  options.redis.address = server().address();
  options.redis.patience = std::chrono::milliseconds(200);
  options.clock_ms = [this] { return clock_.now_ms(); };
  Store store(options);
  Reconciler reconciler(store);
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(reconciler.step().ok());  // beyond the first sets
  server().kill();
  EXPECT_FALSE(reconciler.step().ok());
  server().start();
  disorder();  // also in the sets that it had seen
  int64_t fixes = 0;
  for (bool done = false; !done;) {
    const auto part = reconciler.step();
    ASSERT_TRUE(part.ok()) << part.status().to_string();
    fixes += part->fixes;
    done = part->done;
  }
  EXPECT_EQ(fixes, 4);
}

}  // namespace
}  // namespace dex::store
