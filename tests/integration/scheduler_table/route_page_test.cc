// Routes are read in pages, so no number of adapters or workers makes one long script, and none of
// them is left out (jobs.md §13, P17). What is gone leaves.
#include <set>
#include <string>
#include <vector>

#include "tests/integration/scheduler_store/store_fixture.h"

namespace dex::store {
namespace {

class RoutePageTest : public StoreTest {
 protected:
  // As `finish success` leaves them; all of a tenant in the same millisecond.
  void publish(const std::string& tenant, int count) {
    static const std::string kMake =
        "local P, t = KEYS[1], ARGV[1] "
        "redis.call('SADD', P .. 'tenants', t) "
        "for i = 1, tonumber(ARGV[2]) do "
        "local id = 'ft:base:' .. t .. '::' .. string.format('%05.0f', i) "
        "redis.call('HSET', P .. 'adapter:' .. id, 'id', id, 'tenant', t, 'uri', 'jobs/' .. id, "
        "'sha', 'sha of ' .. id, 'info', string.rep('x', 200), 'disabled', '0') "
        "redis.call('ZADD', P .. 'tadapters:' .. t, '5', id) end";
    server().call({"EVAL", kMake, "1", store_->prefix(), tenant, std::to_string(count)});
  }
};

TEST_F(RoutePageTest, EveryAdapterOfEveryTenantIsThere) {
  publish("alice", 1203);
  publish("bob", 500);  // a whole page
  publish("carol", 1);
  server().call({"SADD", store_->key("tenants"), "dora"});
  server().call({"HSET", store_->key("adapter:ft:base:carol::00001"), "disabled", "1"});
  const auto routes = workers_->routes();
  ASSERT_TRUE(routes.ok()) << routes.status().to_string();
  std::set<std::string> ids;
  for (const AdapterRecord& adapter : routes->adapters) {
    ids.insert(adapter.id);
    EXPECT_EQ(adapter.uri, "jobs/" + adapter.id);
    EXPECT_EQ(adapter.sha256, "sha of " + adapter.id);
    EXPECT_EQ(adapter.id.find(":" + adapter.tenant + ":"), std::string("ft:base").size());
    EXPECT_EQ(adapter.disabled, adapter.tenant == "carol");
  }
  EXPECT_EQ(ids.size(), 1704U);
  EXPECT_EQ(routes->adapters.size(), 1704U);
}

TEST_F(RoutePageTest, AnIndexWithoutItsRecordIsNoRoute) {
  publish("alice", 2);
  server().call({"DEL", store_->key("adapter:ft:base:alice::00001")});
  const auto routes = *workers_->routes();
  ASSERT_EQ(routes.adapters.size(), 1U);
  EXPECT_EQ(routes.adapters[0].id, "ft:base:alice::00002");
}

TEST_F(RoutePageTest, EveryAdapterThatIsWantedIsThere) {
  publish("alice", 230);
  server().call(
      {"EVAL",
       "for _, id in ipairs(redis.call('ZRANGE', KEYS[1] .. 'tadapters:alice', 0, -1)) do "
       "redis.call('ZADD', KEYS[1] .. 'desired', '7', id) end",
       "1", store_->prefix()});
  server().call({"ZADD", store_->key("desired"), "8", "ft:base:alice::gone"});
  const auto wanted = adapters_->wanted();
  ASSERT_TRUE(wanted.ok()) << wanted.status().to_string();
  std::set<std::string> ids;
  for (const AdapterRecord& adapter : wanted->adapters) ids.insert(adapter.id);
  EXPECT_EQ(ids.size(), 230U);
  EXPECT_EQ(wanted->adapters.size(), 230U);
}

TEST_F(RoutePageTest, EveryWorkerIsThereOnce) {
  for (int i = 0; i < 120; ++i) {
    if (i % 30 == 0) clock_.advance_ms(1);
    enlist("w" + std::to_string(i));
  }
  ASSERT_TRUE(workers_->drain("w7").ok());
  ASSERT_TRUE(workers_->gone("w8").ok());
  const auto workers = workers_->workers();
  ASSERT_TRUE(workers.ok()) << workers.status().to_string();
  std::set<std::string> ids;
  for (const WorkerRecord& worker : *workers) {
    ids.insert(worker.id);
    EXPECT_EQ(worker.state, worker.id == "w7" ? "draining" : "up");
  }
  EXPECT_EQ(ids.size(), 119U);
  EXPECT_EQ(workers->size(), 119U);
  EXPECT_FALSE(ids.contains("w8"));
}

// The record of a worker that left, or was lost, goes a day later, so that workers with ever new
// names do not fill the store; one that comes back stays.
TEST_F(RoutePageTest, RecordsOfWorkersThatLeftGoAfterADay) {
  const auto left_ms = [&](const std::string& worker) {
    return server().call({"PTTL", store_->key("worker:" + worker)}).as_int();
  };
  constexpr int64_t kNearlyADay = 86'400'000 - 60'000;
  for (const char* worker : {"w1", "w2", "w3"}) enlist(worker);
  EXPECT_EQ(left_ms("w1"), -1);
  ASSERT_TRUE(workers_->gone("w1").ok());
  EXPECT_GT(left_ms("w1"), kNearlyADay);
  ASSERT_TRUE(workers_->gone("w2").ok());
  enlist("w2");
  EXPECT_EQ(left_ms("w2"), -1);
  for (int i = 0; i < 30; ++i) {  // w3 is silent
    ASSERT_TRUE(store_->sweep().ok());
    clock_.advance_ms(5000);
  }
  EXPECT_GT(left_ms("w3"), kNearlyADay);
}

}  // namespace
}  // namespace dex::store
