#include "services/gateway/routing/balancer.h"

#include <gmock/gmock.h>

namespace dex::gateway {
namespace {

// Addresses at which nobody listens: a channel that was never tried counts as reachable.
RouteTable::Worker worker(const std::string& id, bool holds = false, uint32_t load = 0) {
  return {id, "unix:/nowhere/" + id, holds, load};
}
const Target kBase{"smol", "", ""};
const Target kAdapter{"smol", "a", "hash"};

std::string pick(Balancer& balancer, const Target& target,
                 const std::vector<RouteTable::Worker>& workers, std::string_view except = {}) {
  const auto lease = balancer.pick(target, workers, except);
  return lease.ok() ? lease.value().address().substr(14) : lease.status().reason();
}

TEST(BalancerTest, NobodyThereIsNoWorker) {
  Balancer balancer;
  EXPECT_EQ(pick(balancer, kBase, {}), "NO_WORKER");
  EXPECT_EQ(pick(balancer, kBase, {worker("a")}, "unix:/nowhere/a"), "NO_WORKER");
}

TEST(BalancerTest, OwnCallsCountAsLoadUntilTheyEnd) {
  Balancer balancer;
  const std::vector workers{worker("a"), worker("b")};
  auto first = balancer.pick(kBase, workers);
  auto second = balancer.pick(kBase, workers);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first.value().address(), second.value().address());
  const std::string busy = second.value().address();
  { const auto gone = std::move(first); }
  for (int i = 0; i < 4; ++i) EXPECT_NE("unix:/nowhere/" + pick(balancer, kBase, workers), busy);
}

TEST(BalancerTest, LoadThatWorkersReportCounts) {
  Balancer balancer;
  const std::vector workers{worker("a", false, 5), worker("b", false, 2), worker("c", false, 9)};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pick(balancer, kBase, workers), "b");
}

TEST(BalancerTest, AWorkerThatHoldsTheAdapterComesFirst) {
  Balancer balancer;
  const std::vector workers{worker("a", false, 0), worker("b", true, 7)};
  EXPECT_EQ(pick(balancer, kAdapter, workers), "b");
  EXPECT_EQ(pick(balancer, kBase, workers), "a");
  EXPECT_EQ(pick(balancer, kAdapter, workers, "unix:/nowhere/b"), "a");
}

TEST(BalancerTest, EqualOnesTakeTurns) {
  Balancer balancer;
  const std::vector workers{worker("a"), worker("b"), worker("c")};
  std::map<std::string, int> seen;
  for (int i = 0; i < 30; ++i) ++seen[pick(balancer, kBase, workers)];
  EXPECT_THAT(seen,
              ::testing::ElementsAre(std::pair("a", 10), std::pair("b", 10), std::pair("c", 10)));
}

TEST(BalancerTest, ChannelsOfRoutesThatAreGoneEndWithTheirLastCall) {
  Balancer balancer;
  std::weak_ptr<grpc::Channel> channel;
  {
    const auto lease = balancer.pick(kBase, {worker("a")});
    ASSERT_TRUE(lease.ok());
    channel = lease.value().channel();
    balancer.keep_only(RouteTable());
    EXPECT_FALSE(channel.expired());  // the call goes on
  }
  EXPECT_FALSE(channel.expired());  // ended in a callback: not there
  balancer.keep_only(RouteTable());
  EXPECT_TRUE(channel.expired());
}

}  // namespace
}  // namespace dex::gateway
