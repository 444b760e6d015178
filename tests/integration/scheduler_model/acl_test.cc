// The Redis accounts of jobs.md §8: each can do its work and nothing else.
#include <gtest/gtest.h>

#include "tests/integration/scheduler_model/falsify.h"
#include "tests/integration/scheduler_model/model_run.h"

namespace dex::model {
namespace {

constexpr const char* kAccounts =
    "user sched on >secret ~dex:* -@all +@read +@write +@scripting +@connection +time -@dangerous "
    "+info +config|get -script|flush -script|kill\n"
    "user keda on >secret ~dex:{s0}:ready:* ~dex:{s0}:inflight:* -@all +eval +evalsha +script|load "
    "+type +zcard +llen +ping +hello +auth\n"
    "user probe on >secret -@all +ping\n";

// As KEDA's redis scaler asks for a length, whatever the key is.
constexpr const char* kLengthOf = R"lua(
local listName = KEYS[1]
local listType = redis.call('type', listName).ok
local cmd = {zset = 'zcard', set = 'scard', list = 'llen', hash = 'hlen', none = 'llen'}
return redis.call(cmd[listType], listName)
)lua";

class AclTest : public testing::Test {
 protected:
  AclTest() : server_(kAccounts) {}

  store::RedisAddress as(const std::string& account) {
    store::RedisAddress address = server_.address();
    address.username = account;
    address.password = "secret";
    return address;
  }
  std::unique_ptr<store::Connection> log_in(const std::string& account) {
    auto made = store::Connection::connect(as(account), std::chrono::seconds(2));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(made).value();
  }

  support::RedisServer server_;
};

TEST_F(AclTest, TheSchedulersAccountIsEnoughForEveryScript) {
  World::Options options;
  options.address = as("sched");
  model::Run run;
  for (uint64_t seed = 1; run.steps < 500; ++seed) {
    ASSERT_EQ(falsify(seed, 400, false,
                      [&](const std::vector<Command>& commands) {
                        return run_commands_on(server_, commands, options, run);
                      }),
              "");
  }
  store::Store::Options as_scheduler;
  as_scheduler.redis.address = as("sched");
  store::Store store(as_scheduler);
  EXPECT_TRUE(store.durability().ok()) << "needs INFO and CONFIG GET";
}

TEST_F(AclTest, TheSchedulersAccountIsEnoughForNothingElse) {
  const auto sched = log_in("sched");
  ASSERT_TRUE(sched->call({"SET", "dex:{s0}:mine", "1"}).ok);
  const std::vector<std::vector<std::string>> refused = {
      {"SET", "other", "1"},
      {"GET", "other"},
      {"EVAL", "return redis.call('SET', 'other', '1')", "0"},
      {"KEYS", "*"},
      {"FLUSHALL"},
      {"CONFIG", "SET", "maxmemory", "1"},
      {"SCRIPT", "FLUSH"},
      {"SCRIPT", "KILL"},
      {"DEBUG", "SLEEP", "0"},
      {"ACL", "LIST"},
      {"CLIENT", "KILL", "TYPE", "normal"},
      {"SHUTDOWN", "NOSAVE"}};
  for (const auto& words : refused) {
    const store::Answer answer = sched->call(words);
    EXPECT_FALSE(answer.ok) << words[0];
    EXPECT_NE(answer.error, store::ErrorClass::kIo) << words[0] << ": " << answer.message;
  }
}

TEST_F(AclTest, KedaReadsTheLengthOfTwoKindsOfKeysAndNothingElse) {
  server_.call({"ZADD", "dex:{s0}:ready:cpu", "1", "a", "2", "b", "3", "c"});
  server_.call({"HSET", "dex:{s0}:job:a", "spec", "private"});
  const auto keda = log_in("keda");
  const auto length = [&](const std::string& key) {
    return keda->call({"EVAL", kLengthOf, "1", key});
  };
  ASSERT_TRUE(length("dex:{s0}:ready:cpu").ok) << length("dex:{s0}:ready:cpu").message;
  EXPECT_EQ(length("dex:{s0}:ready:cpu").reply.as_int(), 3);
  EXPECT_EQ(length("dex:{s0}:inflight:gpu1").reply.as_int(), 0) << "no such key yet";
  EXPECT_FALSE(length("dex:{s0}:job:a").ok);
  EXPECT_FALSE(length("dex:{s0}:lease").ok);
  EXPECT_FALSE(keda->call({"HGETALL", "dex:{s0}:job:a"}).ok);
  EXPECT_FALSE(keda->call({"ZRANGE", "dex:{s0}:ready:cpu", "0", "-1"}).ok);
  EXPECT_FALSE(keda->call({"ZADD", "dex:{s0}:ready:cpu", "9", "x"}).ok);
  EXPECT_FALSE(
      keda->call({"EVAL", "return redis.call('DEL', KEYS[1])", "1", "dex:{s0}:ready:cpu"}).ok);
  EXPECT_EQ(server_.call({"ZCARD", "dex:{s0}:ready:cpu"}).integer, 3);
}

TEST_F(AclTest, TheProbeMayOnlyAskWhetherRedisLives) {
  const auto probe = log_in("probe");
  EXPECT_TRUE(probe->call({"PING"}).ok);
  EXPECT_FALSE(probe->call({"GET", "dex:{s0}:cfg"}).ok);
  EXPECT_FALSE(probe->call({"INFO"}).ok);
  EXPECT_FALSE(probe->call({"EVAL", "return 1", "0"}).ok);
}

}  // namespace
}  // namespace dex::model
