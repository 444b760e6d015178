// What the doctor finds in a platform that is well, and in each one that is not.
#include "scheduler/server/diagnosis.h"

#include <gmock/gmock.h>

#include <functional>

#include "dex/internal/v1/worker.pb.h"

namespace dex::server {
namespace {

namespace iv1 = dex::internal::v1;
using testing::HasSubstr;
using Health = v1::Health;

store::WorkerRecord worker(const std::string& id, iv1::EngineStatus::State engine) {
  iv1::RegisterRequest registered;
  auto& device = *registered.add_devices();
  device.set_kind("H200");
  device.set_memory_bytes(int64_t{139} << 30);
  iv1::HeartbeatRequest live;
  auto& status = *live.add_engines();
  status.set_base("small-model");
  status.set_state(engine);
  store::WorkerRecord record;
  record.id = id;
  record.host = "machine";
  record.version = "1.2.3";
  record.state = "up";
  record.pools = {"gpu1"};
  record.slots = 1;
  record.models = {"small-model"};
  record.info = registered.SerializeAsString();
  record.live = live.SerializeAsString();
  record.clock_ahead_ms = -100;
  return record;
}

// Two workers, a durable store, room everywhere.
Observed well() {
  Observed seen;
  store::StoreFacts facts;
  facts.version = "7.0.15";
  facts.mode = "standalone";
  facts.role = "master";
  facts.append_only = true;
  facts.last_append = "ok";
  facts.fsync = "always";
  facts.fsync_in_rewrite = "no";
  facts.eviction = "noeviction";
  facts.used_bytes = 100 << 20;
  facts.most_bytes = 512 << 20;
  facts.now_ms = 1'764'000'000'000;
  seen.store = facts;
  seen.now_ms = facts.now_ms + 3;
  seen.free_bytes = int64_t{200} << 30;
  seen.free_ratio = 0.6;
  seen.workers = {worker("w1", iv1::EngineStatus::STATE_SERVING),
                  worker("w2", iv1::EngineStatus::STATE_SERVING)};
  v1::Model model;
  model.set_name("small-model");
  model.set_weights_sha256("aa");
  seen.models = {model};
  seen.version = "1.2.3";
  return seen;
}

// The store's facts of `seen`, changed.
void change(Observed& seen, const std::function<void(store::StoreFacts&)>& how) {
  store::StoreFacts facts = *seen.store;
  how(facts);
  seen.store = facts;
}

// The check of that name; an empty one when there is none.
Health::Check check_of(const Health& health, const std::string& name) {
  for (const auto& check : health.checks()) {
    if (check.name() == name) return check;
  }
  return {};
}

// Whether each promise is kept, in order: processes, power, disk, outage, one result, dead worker,
// inference.
std::vector<bool> kept(const Health& health) {
  std::vector<bool> promises;
  for (const auto& promise : health.promises()) promises.push_back(promise.kept());
  return promises;
}

TEST(DiagnosisTest, APlatformThatIsWell) {
  const Health health = diagnose(well());
  for (const auto& check : health.checks()) {
    EXPECT_EQ(check.severity(), Health::SEVERITY_OK) << check.DebugString();
    EXPECT_EQ(check.remedy(), "") << check.name();
    EXPECT_NE(check.finding(), "") << check.name();
  }
  EXPECT_THAT(check_of(health, "w1").finding(), HasSubstr("H200 139.0 GiB"));
  EXPECT_THAT(check_of(health, "GPUs").finding(), HasSubstr("2 × H200"));
  EXPECT_THAT(check_of(health, "memory").finding(), HasSubstr("20 %"));
  EXPECT_EQ(kept(health), (std::vector<bool>{true, true, false, true, true, true, true}))
      << "one disk is one disk";
}

TEST(DiagnosisTest, EachSettingOfTheStoreThatLosesJobs) {
  struct Case {
    const char* name;
    std::function<void(store::StoreFacts&)> how;
    const char* says;
  };
  for (const Case& c : {
           Case{"append-only file", [](auto& f) { f.append_only = false; }, "forgets every job"},
           Case{"append-only file", [](auto& f) { f.last_append = "err"; }, "failed: err"},
           Case{"fsync", [](auto& f) { f.fsync = "everysec"; }, "last second"},
           Case{"eviction", [](auto& f) { f.eviction = "allkeys-lru"; }, "throws jobs away"},
       }) {
    Observed seen = well();
    change(seen, c.how);
    const Health health = diagnose(seen);
    EXPECT_EQ(check_of(health, c.name).severity(), Health::SEVERITY_FAIL) << c.says;
    EXPECT_THAT(check_of(health, c.name).finding(), HasSubstr(c.says));
    EXPECT_NE(check_of(health, c.name).remedy(), "");
    EXPECT_FALSE(kept(health)[0]) << c.says;
    EXPECT_FALSE(kept(health)[1]) << c.says;
  }
  Observed seen = well();
  change(seen, [](auto& f) { f.fsync_in_rewrite = "yes"; });
  EXPECT_EQ(kept(diagnose(seen)), (std::vector<bool>{true, false, false, true, true, true, true}))
      << "not lost with a process, but with the power";
}

TEST(DiagnosisTest, RoomThatRunsOut) {
  Observed seen = well();
  change(seen, [](auto& f) { f.used_bytes = 400 << 20; });
  EXPECT_EQ(check_of(diagnose(seen), "memory").severity(), Health::SEVERITY_WARN);
  change(seen, [](auto& f) { f.used_bytes = 500 << 20; });
  EXPECT_EQ(check_of(diagnose(seen), "memory").severity(), Health::SEVERITY_FAIL);
  change(seen, [](auto& f) { f.most_bytes = 0; });
  EXPECT_EQ(check_of(diagnose(seen), "memory").severity(), Health::SEVERITY_WARN);

  seen = well();
  seen.free_ratio = 0.05;
  EXPECT_EQ(check_of(diagnose(seen), "data directory").severity(), Health::SEVERITY_WARN);
  seen.free_bytes = int64_t{100} << 20;
  EXPECT_EQ(check_of(diagnose(seen), "data directory").severity(), Health::SEVERITY_FAIL);
  seen.store_free_ratio = 0.02;
  EXPECT_EQ(check_of(diagnose(seen), "disk of the store").severity(), Health::SEVERITY_WARN);
}

TEST(DiagnosisTest, ClocksTenMinutesApart) {
  Observed seen = well();
  seen.now_ms = seen.store->now_ms - 600'000;
  const auto check = check_of(diagnose(seen), "scheduler and store");
  EXPECT_EQ(check.severity(), Health::SEVERITY_FAIL);
  EXPECT_THAT(check.finding(), HasSubstr("600000 ms apart"));
  seen.now_ms = seen.store->now_ms + 5000;
  EXPECT_EQ(check_of(diagnose(seen), "scheduler and store").severity(), Health::SEVERITY_WARN);
}

TEST(DiagnosisTest, ClocksOfWorkers) {
  Observed seen = well();
  seen.workers[1].clock_ahead_ms = 1900;
  EXPECT_EQ(check_of(diagnose(seen), "scheduler and workers").finding(),
            "2 workers, at most 1900 ms apart");

  seen.workers[0].clock_ahead_ms = -600'000;
  const Health health = diagnose(seen);
  const auto wrong = check_of(health, "worker w1");
  EXPECT_EQ(wrong.topic(), "clock");
  EXPECT_EQ(wrong.severity(), Health::SEVERITY_WARN) << "no lease depends on it";
  EXPECT_THAT(wrong.finding(), HasSubstr("600000 ms behind the scheduler"));
  EXPECT_THAT(wrong.remedy(), HasSubstr("machine")) << "where it is to be set";
  EXPECT_EQ(check_of(health, "worker w2").name(), "");
  EXPECT_EQ(check_of(health, "scheduler and workers").name(), "") << "not all are well";
  seen.workers[0].clock_ahead_ms = 2000;
  EXPECT_THAT(check_of(diagnose(seen), "worker w1").finding(), HasSubstr("ahead of"));

  for (auto& worker : seen.workers) worker.clock_ahead_ms.reset();  // of an older version
  EXPECT_EQ(check_of(diagnose(seen), "scheduler and workers").name(), "") << "nobody told";
}

TEST(DiagnosisTest, AStoreThatIsAway) {
  Observed seen = well();
  seen.store = base::unavailable("STORE_UNAVAILABLE", "The store does not answer: no such file");
  seen.workers.clear();  // they are known by the store
  const Health health = diagnose(seen);
  EXPECT_EQ(check_of(health, "Redis").severity(), Health::SEVERITY_FAIL);
  EXPECT_THAT(check_of(health, "Redis").finding(), HasSubstr("no such file"));
  EXPECT_EQ(check_of(health, "workers").name(), "") << "nobody can say";
  EXPECT_EQ(check_of(health, "data directory").severity(), Health::SEVERITY_OK);
  EXPECT_EQ(kept(health), (std::vector<bool>{false, false, false, true, true}));
}

TEST(DiagnosisTest, WorkersThatAreMissingOrOld) {
  Observed seen = well();
  seen.workers.pop_back();
  EXPECT_EQ(kept(diagnose(seen)), (std::vector<bool>{true, true, false, true, true, false, false}));
  seen.workers[0].version = "1.2.2";
  EXPECT_EQ(check_of(diagnose(seen), "versions").severity(), Health::SEVERITY_WARN);
  EXPECT_THAT(check_of(diagnose(seen), "versions").finding(), HasSubstr("1.2.2"));

  seen.workers = {worker("w1", iv1::EngineStatus::STATE_DOWN)};
  EXPECT_EQ(check_of(diagnose(seen), "w1").severity(), Health::SEVERITY_FAIL);
  seen.workers[0].state = "draining";
  seen.pools = {{"gpu1", 5.0}};
  EXPECT_EQ(check_of(diagnose(seen), "queue gpu1").severity(), Health::SEVERITY_FAIL)
      << "a job waits, and who drains takes none";
  EXPECT_EQ(check_of(diagnose(seen), "small-model").severity(), Health::SEVERITY_WARN);

  seen.workers.clear();
  EXPECT_EQ(check_of(diagnose(seen), "workers").severity(), Health::SEVERITY_FAIL);
}

TEST(DiagnosisTest, QueuesAndModels) {
  Observed seen = well();
  seen.pools = {{"gpu1", 30.0}};
  EXPECT_EQ(check_of(diagnose(seen), "queue gpu1").severity(), Health::SEVERITY_OK);
  seen.pools = {{"gpu1", 300.0}};
  EXPECT_EQ(check_of(diagnose(seen), "queue gpu1").severity(), Health::SEVERITY_WARN);
  seen.models[0].set_name("large-model");
  EXPECT_THAT(check_of(diagnose(seen), "large-model").finding(), HasSubstr("no worker has it"));
  seen.models.clear();
  EXPECT_EQ(check_of(diagnose(seen), "models").severity(), Health::SEVERITY_FAIL);
}

TEST(DiagnosisTest, AStoreWithCopiesForgetsInAFailover) {
  Observed seen = well();
  change(seen, [](auto& f) { f.replicas = 2; });
  const auto check = check_of(diagnose(seen), "copies");
  EXPECT_EQ(check.severity(), Health::SEVERITY_WARN);
  EXPECT_THAT(check.finding(), HasSubstr("2 replicas"));
}

}  // namespace
}  // namespace dex::server
