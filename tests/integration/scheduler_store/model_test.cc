// Random calls, half of them repeated, with stale epochs, wrong workers and tenants, limits that
// change and a clock that jumps; after each few steps the oracle. A failure prints its seed.
#include <cstdlib>
#include <random>

#include "tests/support/invariants.h"
#include "tests/integration/scheduler_store/store_fixture.h"

namespace dex::store {
namespace {

class ModelTest : public StoreTest, public testing::WithParamInterface<uint32_t> {
 protected:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  bool chance(int percent) { return pick(100) < percent; }
  std::string tenant() { return std::string(1, static_cast<char>('a' + pick(3))); }
  std::string worker() { return "w" + std::to_string(pick(3)); }
  std::string any_job() { return "ftjob-m" + std::to_string(pick(std::max(1, made_))); }

  // Half of the calls are sent twice: the second must change nothing (I8).
  template <typename Call>
  auto twice(const Call& call) {
    auto first = call();
    EXPECT_NE(first.status().code(), base::Code::kInternal) << first.status().to_string();
    if (chance(50) && first.ok()) {
      const std::string before = dump_all(server());
      const auto again = call();
      EXPECT_TRUE(again.ok()) << again.status().to_string();
      EXPECT_EQ(dump_all(server()), before);
    }
    return first;
  }

  void submit_some() {
    JobRepository::Submission submission;
    submission.request.id =
        chance(80) ? "r" + std::to_string(made_) : "r" + std::to_string(pick(made_ + 1));
    submission.request.digest = submission.request.id;
    const int n = 1 + pick(3);
    for (int i = 0; i < n; ++i) {
      NewJob job;
      job.id = "ftjob-m" + std::to_string(made_ + i);
      job.priority = pick(10);
      job.delay_ms = chance(20) ? pick(20000) : 0;
      job.deadline_ms = chance(10) ? 1 + pick(100000) : 0;
      job.hold = chance(10);
      job.max_fail = pick(3);
      job.unique_name = chance(20) ? "u" + std::to_string(pick(3)) : "";
      job.cost_gpu_seconds = pick(100);
      if (chance(50)) job.adapter = "ft:b:t::" + std::to_string(made_ + i);
      if (chance(30)) job.files = {"file-" + tenant()};
      submission.jobs.push_back(job);
    }
    const std::string who = tenant();
    const auto result = twice([&] { return jobs_->submit(who, submission); });
    if (result.ok() && !result->replayed) made_ += n;
  }

  void claim_one() {
    const std::string who = worker();
    const int slot = pick(3);
    const std::string id = "c" + std::to_string(++claims_);
    const auto claimed = twice([&] { return jobs_->claim({who, id, slot, {"cpu"}}); });
    if (claimed.ok() && claimed->answer == JobRepository::ClaimAnswer::kJob) {
      held_.push_back({claimed->job, who, 0});
    }
  }

  struct Held {
    ClaimedJob job;
    std::string worker;
    int64_t beats;
  };

  void beat_one() {
    if (held_.empty()) return;
    Held& held = held_[pick(static_cast<int>(held_.size()))];
    JobRepository::Beat beat{chance(90) ? held.worker : worker(),
                             held.job.id,
                             held.job.epoch - (chance(5) ? 1 : 0),
                             ++held.beats,
                             "TRAINING",
                             "p",
                             {},
                             {}};
    if (chance(30)) beat.checkpoint = {"ck-" + std::to_string(held.beats), "sha", held.beats};
    if (chance(30)) beat.events = {{0, "INFO", "metrics", "m", "d"}};
    (void)twice([&] { return jobs_->beat(beat); });
  }

  void finish_one() {
    if (held_.empty()) return;
    static const std::vector<std::string> outcomes = {"success", "fail_retry", "fail_final",
                                                      "crash",   "oom",        "disk_full",
                                                      "release", "paused",     "cancelled"};
    const size_t at = static_cast<size_t>(pick(static_cast<int>(held_.size())));
    const Held held = held_[at];
    JobRepository::Finish finish;
    finish.worker = chance(90) ? held.worker : worker();
    finish.id = held.job.id;
    finish.epoch = held.job.epoch - (chance(5) ? 1 : 0);
    finish.outcome = outcomes[static_cast<size_t>(pick(static_cast<int>(outcomes.size())))];
    finish.why_code = "internal";
    finish.why = "model";
    if (finish.outcome == "success") finish.result_uri = "uri";
    (void)twice([&] { return jobs_->finish(finish); });
    if (chance(80))
      held_.erase(held_.begin() + static_cast<int64_t>(at));  // else it stays as a zombie
  }

  void step() {
    const int what = pick(100);
    const std::string who = tenant(), id = any_job();
    if (what < 20) return submit_some();
    if (what < 45) return claim_one();
    if (what < 60) return beat_one();
    if (what < 78) return finish_one();
    if (what < 82) {
      const RequestKey key = chance(50) ? RequestKey{"cancel-" + id, "x"} : RequestKey{};
      return (void)twice([&] { return jobs_->cancel(who, id, "model", key); });
    }
    if (what < 86) return (void)twice([&] { return jobs_->pause(who, id); });
    if (what < 90) return (void)twice([&] { return jobs_->resume(who, id); });
    if (what < 92) {
      return (void)store_->set_tenant(who, 1 + pick(3), 5 + pick(30), pick(5),
                                      chance(20) ? 1000 : 0);
    }
    if (what < 93) return (void)workers_->drain(worker());
    if (what < 95) return enlist(worker());
    if (chance(3)) clock_.set_now_ms(clock_.now_ms() - pick(100000));
    clock_.advance_ms(pick(chance(10) ? 40000 : 6000));
    EXPECT_TRUE(store_->sweep().ok());
  }

  std::mt19937 random_;
  int made_ = 0, claims_ = 0;
  std::vector<Held> held_;
};

TEST_P(ModelTest, InvariantsHold) {
  random_.seed(GetParam());
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  for (const std::string who : {"a", "b", "c"}) {
    FileRecord file;
    file.id = "file-" + who;
    file.state = "READY";
    file.sha256 = "sha";
    ASSERT_TRUE(files_->put(who, {"file", "x"}, file, 10).ok());
  }
  for (int i = 0; i < 3; ++i) enlist("w" + std::to_string(i));
  for (int i = 0; i < 600 && !HasFailure(); ++i) {
    step();
    if (i % 20 != 0) continue;
    for (const std::string& wrong : broken_invariants(server(), clock_.now_ms())) {
      ADD_FAILURE() << "step " << i << ": " << wrong;
    }
  }
  EXPECT_GT(made_, 20);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ModelTest, testing::Range(1U, 7U));

}  // namespace
}  // namespace dex::store
