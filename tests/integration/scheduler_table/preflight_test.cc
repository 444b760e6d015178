// A Redis that must not be used is refused with the reason; one that is away is not (jobs.md §8).
#include <chrono>
#include <string>
#include <vector>

#include "tests/integration/scheduler_store/store_fixture.h"
#include "tests/support/fake_redis.h"

namespace dex::store {
namespace {

class PreflightTest : public StoreTest {
 protected:
  static base::Status preflight(RedisAddress address) {
    Store::Options options;
    options.redis.address = std::move(address);
    options.redis.patience = std::chrono::milliseconds(200);
    return Store(options).preflight();
  }
  static base::Status preflight() { return preflight(server().address()); }
  static void set(const std::string& name, const std::string& value) {
    server().call({"CONFIG", "SET", name, value});
  }
};

TEST_F(PreflightTest, AGoodOneIsTaken) {
  const auto status = preflight();
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_F(PreflightTest, AnOldVersionIsNamed) {
  for (const std::string version : {"6.2.14", "5.0.7", ""}) {
    const support::FakeRedis old([&version](int) {
      return support::redis_text("# Server\r\nredis_version:" + version + "\r\nrun_id:abc\r\n");
    });
    const auto status = preflight(old.address());
    EXPECT_EQ(status.reason(), "STORE_TOO_OLD") << status.to_string();
    EXPECT_EQ(status.code(), base::Code::kFailedPrecondition);
    EXPECT_NE(status.message().find(version), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("7.0 or newer"), std::string::npos) << status.message();
  }
}

TEST_F(PreflightTest, AWrongOrMissingPasswordIsRefused) {
  set("requirepass", "secret");
  EXPECT_EQ(preflight().reason(), "STORE_REFUSED");
  RedisAddress address = server().address();
  address.password = "wrong";
  EXPECT_EQ(preflight(address).reason(), "STORE_REFUSED");
  address.username = "nobody";
  EXPECT_EQ(preflight(address).reason(), "STORE_REFUSED");
  address.username = "";
  address.password = "secret";
  const auto status = preflight(address);
  EXPECT_TRUE(status.ok()) << status.to_string();
  set("requirepass", "");
}

TEST_F(PreflightTest, AnAccountWithoutTheRightsIsRefused) {
  server().call({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "+@read", "+@connection", "+info"});
  RedisAddress address = server().address();
  address.username = "weak";
  address.password = "pw";
  EXPECT_EQ(preflight(address).reason(), "STORE_REFUSED");
  server().call({"ACL", "DELUSER", "weak"});
}

TEST_F(PreflightTest, DataOfANewerSchedulerIsLeftAlone) {
  server().call({"HSET", store_->key("cfg"), "schema", "2"});
  const auto status = preflight();
  EXPECT_EQ(status.reason(), "STORE_TOO_NEW") << status.to_string();
  EXPECT_NE(status.message().find("schema 2"), std::string::npos) << status.message();
  server().call({"HSET", store_->key("cfg"), "schema", "1"});
}

TEST_F(PreflightTest, SettingsThatLoseJobsAreNamed) {
  struct Lax {
    std::string name, value, right;
  };
  for (const Lax& lax : std::vector<Lax>{{"maxmemory-policy", "allkeys-lru", "noeviction"},
                                         {"appendfsync", "everysec", "always"},
                                         {"appendonly", "no", "yes"}}) {
    set(lax.name, lax.value);
    const auto status = preflight();
    EXPECT_EQ(status.reason(), "STORE_NOT_DURABLE") << lax.name;
    const std::string word = lax.name == "appendonly" ? "aof_enabled" : lax.name;
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
    set(lax.name, lax.right);
  }
}

TEST_F(PreflightTest, OneThatIsAwayIsNotTheOperatorsFault) {
  RedisAddress address;
  address.unix_path = "/nonexistent/redis.sock";
  const auto status = preflight(address);
  EXPECT_EQ(status.code(), base::Code::kUnavailable);
  EXPECT_EQ(status.reason(), "STORE_UNAVAILABLE");
}

// The seam through which mutants of the scripts run.
TEST_F(PreflightTest, AStoreRunsTheScriptsThatItIsGiven) {
  const std::string from = "'pause_reason', 'USER'", to = "'pause_reason', 'TEST'";
  std::vector<Script> scripts;
  for (const Script& script : all_scripts()) {
    std::string text = script.text;
    // The last one: lib.lua, which stands first, has its own.
    if (script.name == "pause") text.replace(text.rfind(from), from.size(), to);
    scripts.emplace_back(script.name, text);
  }
  Store::Options options;
  options.redis.address = server().address();
  options.clock_ms = [this] { return clock_.now_ms(); };
  options.scripts = &scripts;
  Store changed(options);
  const auto first = submit(), second = submit();
  ASSERT_TRUE(jobs_->pause("default", first).ok());
  ASSERT_TRUE(JobRepository(changed).pause("default", second).ok());
  EXPECT_EQ(job(first).pause_reason, "USER");
  EXPECT_EQ(job(second).pause_reason, "TEST");
}

}  // namespace
}  // namespace dex::store
