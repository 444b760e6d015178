// GetHealth on a real store, before and after somebody has changed its settings.
#include "services/base/clock.h"
#include "tests/integration/scheduler_surface/surface_fixture.h"

namespace dex::server {
namespace {

class HealthTest : public SurfaceTest {
 protected:
  HealthTest() {
    store_patience_ = std::chrono::milliseconds(500);
    restart();
    reconnect();
  }
  v1::Health health() {
    const auto found = call(*admin_, &AdminStub::GetHealth, v1::GetHealthRequest());
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    return found.ok() ? *found : v1::Health();
  }
  static v1::Health::Check check_of(const v1::Health& health, const std::string& name) {
    for (const auto& check : health.checks()) {
      if (check.name() == name) return check;
    }
    return {};
  }
};

TEST_F(HealthTest, ADurableStoreWithAWorker) {
  enlist("w1", {"small-model"});
  report_engine("w1");
  const auto found = health();
  EXPECT_FALSE(found.version().empty());
  EXPECT_GT(found.server_time().seconds(), 1'700'000'000);
  for (const char* name : {"Redis", "append-only file", "fsync", "eviction", "memory", "copies",
                           "scheduler and store", "w1", "small-model"}) {
    EXPECT_EQ(check_of(found, name).severity(), v1::Health::SEVERITY_OK)
        << name << ": " << check_of(found, name).finding();
  }
  EXPECT_NE(check_of(found, "Redis").finding().find("version 7"), std::string::npos);
  EXPECT_NE(check_of(found, "w1").finding().find("serves small-model"), std::string::npos);
  ASSERT_GT(found.promises_size(), 0);
  EXPECT_TRUE(found.promises(0).kept());
}

TEST_F(HealthTest, AWorkersClockThatIsWrong) {
  enlist("w1", {"small-model"});
  const auto beat_at = [&](int64_t now_ms) {
    iv1::HeartbeatRequest beat;
    beat.set_worker_id("w1");
    beat.set_now_ms(now_ms);
    ASSERT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Heartbeat, beat).ok());
  };
  base::SystemClock clock;
  beat_at(clock.now_ms());
  EXPECT_EQ(check_of(health(), "scheduler and workers").severity(), v1::Health::SEVERITY_OK);
  beat_at(clock.now_ms() + 600'000);
  EXPECT_EQ(check_of(health(), "worker w1").severity(), v1::Health::SEVERITY_WARN);
  EXPECT_NE(check_of(health(), "worker w1").finding().find("ahead of the scheduler"),
            std::string::npos);
  beat_at(0);  // an older agent's beat, which tells nothing: what is known stays
  EXPECT_EQ(check_of(health(), "worker w1").severity(), v1::Health::SEVERITY_WARN);
  beat_at(clock.now_ms());
  EXPECT_EQ(check_of(health(), "worker w1").name(), "") << "it was set";
}

TEST_F(HealthTest, SettingsThatLoseJobsAreFoundWhileItRuns) {
  redis_.call({"CONFIG", "SET", "appendfsync", "everysec"});
  redis_.call({"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"});
  redis_.call({"CONFIG", "SET", "no-appendfsync-on-rewrite", "yes"});
  redis_.call({"CONFIG", "SET", "maxmemory", "0"});
  const auto found = health();
  EXPECT_EQ(check_of(found, "fsync").severity(), v1::Health::SEVERITY_FAIL);
  EXPECT_EQ(check_of(found, "eviction").severity(), v1::Health::SEVERITY_FAIL);
  EXPECT_EQ(check_of(found, "fsync while rewriting").severity(), v1::Health::SEVERITY_FAIL);
  EXPECT_EQ(check_of(found, "memory").severity(), v1::Health::SEVERITY_WARN);
  EXPECT_EQ(check_of(found, "workers").severity(), v1::Health::SEVERITY_FAIL) << "there is none";
  ASSERT_GT(found.promises_size(), 0);
  EXPECT_FALSE(found.promises(0).kept());
}

TEST_F(HealthTest, AStoreThatIsAwayIsADiagnosisAndNoError) {
  redis_.kill();
  const auto found = health();
  EXPECT_EQ(check_of(found, "Redis").severity(), v1::Health::SEVERITY_FAIL);
  EXPECT_NE(check_of(found, "data directory").finding(), "");
  redis_.start();
}

}  // namespace
}  // namespace dex::server
