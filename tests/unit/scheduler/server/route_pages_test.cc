// A large snapshot in messages that gRPC takes.
#include <gtest/gtest.h>

#include "scheduler/server/routes.h"
#include "services/rpc/limits.h"

namespace dex::server {
namespace {

iv1::RouteSnapshot snapshot_of(int adapters) {
  iv1::RouteSnapshot whole;
  whole.set_revision(7);
  whole.add_bases("small-model");
  whole.add_bases("large-model");
  auto& route = *whole.add_routes();
  route.set_worker("w1");
  route.set_base("small-model");
  for (int i = 0; i < adapters; ++i) {
    auto& adapter = *whole.add_adapters();
    adapter.set_id("ft:small-model:default::" + std::to_string(i));
    adapter.set_content_sha256(std::string(64, 'a'));
    adapter.set_path("jobs/default/ftjob-" + std::to_string(i) + "/attempt-1/final");
    if (i % 5 != 0) continue;
    auto& alias = *whole.add_aliases();
    alias.set_name("alias-" + std::to_string(i));
    *alias.mutable_adapter() = adapter;
  }
  return whole;
}

TEST(RoutePagesTest, TogetherTheyAreTheWhole) {
  const auto whole = snapshot_of(50'000);
  ASSERT_GT(whole.ByteSizeLong(), static_cast<size_t>(rpc::kLargestMessageBytes));
  const auto pages = route_pages(whole, 1 << 20);
  ASSERT_GT(pages.size(), 4U);
  iv1::RouteSnapshot joined;
  for (size_t i = 0; i < pages.size(); ++i) {
    EXPECT_LE(pages[i].ByteSizeLong(), 2U << 20);
    EXPECT_EQ(pages[i].revision(), 7);
    EXPECT_EQ(pages[i].more(), i + 1 < pages.size());
    joined.MergeFrom(pages[i]);
  }
  joined.set_more(false);
  EXPECT_EQ(joined.SerializeAsString(), whole.SerializeAsString());
}

TEST(RoutePagesTest, ASmallOneAndAnEmptyOneAreOneMessage) {
  const auto pages = route_pages(snapshot_of(3), 1 << 20);
  ASSERT_EQ(pages.size(), 1U);
  EXPECT_EQ(pages[0].SerializeAsString(), snapshot_of(3).SerializeAsString());
  ASSERT_EQ(route_pages({}, 1 << 20).size(), 1U);
  EXPECT_FALSE(route_pages({}, 1 << 20)[0].more());
}

TEST(RoutePagesTest, WhatIsLargerThanAPageHasOneOfItsOwn) {
  const auto pages = route_pages(snapshot_of(5), 10);
  EXPECT_EQ(pages.size(), 2U + 1U + 5U + 1U);  // two bases, a route, five adapters, an alias
}

TEST(RouteLoadTest, IsToldInSteps) {
  for (const uint32_t few : {0U, 1U, 7U}) EXPECT_EQ(told_load(few), 0U);
  EXPECT_EQ(told_load(8), 8U);
  EXPECT_EQ(told_load(15), 8U);
  EXPECT_EQ(told_load(16), 16U);
  EXPECT_EQ(told_load(1056), 1024U);
}

}  // namespace
}  // namespace dex::server
