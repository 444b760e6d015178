#include "tests/integration/scheduler_store/store_fixture.h"

#include "tests/support/invariants.h"

namespace dex::store {

namespace {
const std::string kPrefix = "dex:{s0}:";
}

support::RedisServer& StoreTest::server() {
  static support::RedisServer server;
  return server;
}

StoreTest::StoreTest() {
  server().call({"FLUSHALL"});
  server().call({"HSET", kPrefix + "cfg", "testclock", "1", "events_max", "0"});
  store_ = make_store();
  jobs_ = std::make_unique<JobRepository>(*store_);
  files_ = std::make_unique<FileRepository>(*store_);
  adapters_ = std::make_unique<AdapterRepository>(*store_);
  workers_ = std::make_unique<WorkerRepository>(*store_);
}

void StoreTest::TearDown() {
  for (const std::string& wrong : broken_invariants(server(), clock_.now_ms()))
    ADD_FAILURE() << wrong;
  const auto fixes = store_->reconcile();
  ASSERT_TRUE(fixes.ok()) << fixes.status().to_string();
  EXPECT_EQ(*fixes, 0);
}

std::unique_ptr<Store> StoreTest::make_store() {
  Store::Options options;
  options.redis.address = server().address();
  options.clock_ms = [this] { return clock_.now_ms(); };
  return std::make_unique<Store>(options);
}

std::string StoreTest::submit(const std::string& tenant, NewJob job) {
  const std::string n = std::to_string(++next_);
  if (job.id.empty()) job.id = "ftjob-" + n;
  JobRepository::Submission submission;
  submission.request.id = "request-" + n;
  submission.request.digest = "sha-" + n;
  if (job.spec.empty()) job.spec = "spec of " + job.id;
  submission.jobs = {job};
  const auto submitted = jobs_->submit(tenant, submission);
  EXPECT_TRUE(submitted.ok()) << submitted.status().to_string();
  return job.id;
}

void StoreTest::enlist(const std::string& worker, const std::vector<std::string>& models) {
  WorkerRecord record;
  record.id = worker;
  record.pools = {"cpu"};
  record.slots = 1;
  record.models = models;
  const auto sign = workers_->enlist(record);
  EXPECT_TRUE(sign.ok()) << sign.status().to_string();
}

JobRepository::Claim StoreTest::claim(const std::string& worker, const std::string& claim_id,
                                      int slot) {
  const std::string id = claim_id.empty() ? "claim-" + std::to_string(++next_) : claim_id;
  const auto claimed = jobs_->claim({worker, id, slot, {"cpu"}});
  EXPECT_TRUE(claimed.ok()) << claimed.status().to_string();
  return claimed.ok() ? *claimed : JobRepository::Claim{};
}

JobRepository::Finished StoreTest::finish(const ClaimedJob& job, const std::string& worker,
                                          const std::string& outcome) {
  JobRepository::Finish finish;
  finish.worker = worker;
  finish.id = job.id;
  finish.epoch = job.epoch;
  finish.outcome = outcome;
  if (outcome == "success") finish.result_uri = "jobs/" + job.id + "/final";
  if (outcome.starts_with("fail")) {
    finish.why_code = "internal";
    finish.why = "it broke";
  }
  const auto finished = jobs_->finish(finish);
  EXPECT_TRUE(finished.ok()) << finished.status().to_string();
  return finished.ok() ? *finished : JobRepository::Finished{};
}

JobRepository::BeatReply StoreTest::beat(const ClaimedJob& job, const std::string& worker,
                                         int64_t sequence) {
  JobRepository::Beat beat;
  beat.worker = worker;
  beat.id = job.id;
  beat.epoch = job.epoch;
  beat.sequence = sequence;
  beat.phase = "TRAINING";
  beat.progress = "progress " + std::to_string(sequence);
  const auto reply = jobs_->beat(beat);
  EXPECT_TRUE(reply.ok()) << reply.status().to_string();
  return reply.ok() ? *reply : JobRepository::BeatReply{};
}

JobRecord StoreTest::job(const std::string& id, const std::string& tenant) {
  auto job = jobs_->get(tenant, id);
  EXPECT_TRUE(job.ok()) << job.status().to_string();
  return job.ok() ? std::move(job).value() : JobRecord{};
}

std::vector<std::string> StoreTest::log_types(const std::string& id) {
  std::vector<std::string> types;
  const auto log = jobs_->log(id, 0, 1000);
  EXPECT_TRUE(log.ok()) << log.status().to_string();
  for (const LogEntry& entry : *log) types.push_back(entry.type);
  return types;
}

int64_t StoreTest::zcard(const std::string& name) {
  return server().call({"ZCARD", kPrefix + name}).integer;
}

}  // namespace dex::store
