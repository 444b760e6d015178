// Redrive, update, checkpoints on request, archive and purge: effects and refusals beside the
// table.
#include <string>
#include <vector>

#include "tests/integration/scheduler_store/store_fixture.h"
#include "tests/support/invariants.h"

namespace dex::store {
namespace {

using Asked = JobRepository::AskedCheckpoint;
using Purge = JobRepository::Purge;

class ChangeTest : public StoreTest {
 protected:
  ChangeTest() { enlist("w1"); }

  ClaimedJob running(NewJob job = {}) {
    submit("default", std::move(job));
    return claim("w1").job;
  }
  std::string failed(NewJob job = {}) {
    const auto claimed = running(std::move(job));
    EXPECT_EQ(finish(claimed, "w1", "fail_final").state, "FAILED");
    return claimed.id;
  }
  void put_file(const std::string& id) {
    FileRecord file;
    file.id = id;
    file.state = "READY";
    file.sha256 = "sha-" + id;
    ASSERT_TRUE(files_->put("default", {"put-" + id, "x"}, file, 100).ok());
  }
  JobRepository::BeatReply offer(const ClaimedJob& job, int64_t sequence, const std::string& uri) {
    JobRepository::Beat beat;
    beat.worker = "w1";
    beat.id = job.id;
    beat.epoch = job.epoch;
    beat.sequence = sequence;
    beat.phase = "TRAINING";
    if (!uri.empty()) beat.checkpoint = {uri, "sha of " + uri, sequence};
    return *jobs_->beat(beat);
  }
  Asked asked(const std::string& job, const std::string& checkpoint) {
    return *jobs_->asked_checkpoint("default", job, checkpoint);
  }
  // Refused for this reason, and no key has changed.
  template <typename Call>
  void refused(const std::string& reason, const Call& call) {
    const std::string before = support::dump_all(server());
    EXPECT_EQ(call().status().reason(), reason);
    EXPECT_EQ(support::dump_all(server()), before);
  }
};

TEST_F(ChangeTest, RedriveStartsCountersAgainAndKeepsTheRest) {
  put_file("file-1");
  NewJob job;
  job.files = {"file-1"};
  job.unique_name = "nightly";
  job.max_fail = 0;
  submit("default", job);
  auto claimed = claim("w1").job;
  offer(claimed, 1, "ck-1");
  ASSERT_EQ(finish(claimed, "w1", "fail_retry").state, "FAILED");
  EXPECT_TRUE(this->job(claimed.id).finished_ms > 0);

  clock_.advance_ms(1000);
  const auto redriven = jobs_->redrive("default", claimed.id, {"op-1", "x"}, 60'000);
  ASSERT_TRUE(redriven.ok()) << redriven.status().to_string();
  const JobRecord again = this->job(claimed.id);
  EXPECT_EQ(again.state, "READY");
  EXPECT_EQ(again.failures, 0);
  EXPECT_EQ(again.finished_ms, 0);
  EXPECT_EQ(again.why_code + again.why, "");
  EXPECT_EQ(again.attempt, 1);
  EXPECT_EQ(again.enter_ms, clock_.now_ms());
  EXPECT_EQ(again.deadline_ms, clock_.now_ms() + 60'000);
  EXPECT_EQ(again.checkpoint.uri, "ck-1");
  EXPECT_EQ(files_->remove("default", "file-1").status().reason(), "FILE_IN_USE");
  EXPECT_EQ(log_types(claimed.id).back(), "job_queued");

  const auto second = claim("w1").job;
  EXPECT_GT(second.epoch, claimed.epoch);
  EXPECT_EQ(second.attempt, 2);
  EXPECT_TRUE(finish(claimed, "w1", "crash").lost);  // the first life's worker
  EXPECT_EQ(finish(second, "w1", "success").state, "SUCCEEDED");
}

TEST_F(ChangeTest, RedriveIsKnownByItsOperation) {
  const auto id = failed();
  EXPECT_FALSE(jobs_->redrive("default", id, {"op-1", "x"}, 0)->replayed);
  EXPECT_TRUE(jobs_->redrive("default", id, {"op-1", "x"}, 0)->replayed);
  ASSERT_EQ(finish(claim("w1").job, "w1", "fail_final").state, "FAILED");
  // A late repeat of the first order is no second one.
  EXPECT_TRUE(jobs_->redrive("default", id, {"op-1", "x"}, 0)->replayed);
  EXPECT_EQ(state(id), "FAILED");
  EXPECT_EQ(jobs_->redrive("default", id, {"op-2", "x"}, 0)->state, "READY");
  ASSERT_EQ(finish(claim("w1").job, "w1", "fail_final").state, "FAILED");
  // Nor is one that comes after another order.
  EXPECT_TRUE(jobs_->redrive("default", id, {"op-1", "x"}, 0)->replayed);
  EXPECT_EQ(state(id), "FAILED");
  refused("IDEMPOTENCY_CONFLICT", [&] {
    return jobs_->redrive("default", id, {"op-1", "another job's"}, 0);
  });
}

TEST_F(ChangeTest, RedriveIsRefusedWhereSubmitWouldBe) {
  put_file("file-1");
  NewJob with_file;
  with_file.files = {"file-1"};
  const auto fileless = failed(with_file);
  ASSERT_TRUE(files_->remove("default", "file-1").ok());
  refused("RESOURCE_NOT_FOUND", [&] {
    return jobs_->redrive("default", fileless, {"op", "x"}, 0);
  });

  NewJob named;
  named.unique_name = "one";
  const auto loser = failed(named);
  const auto holder = submit("default", named);
  refused("NAME_TAKEN", [&] { return jobs_->redrive("default", loser, {"op", "x"}, 0); });
  ASSERT_TRUE(jobs_->cancel("default", holder, "").ok());

  const auto plain = failed();
  submit();
  ASSERT_TRUE(store_->set_tenant("default", 1, 1, 2, 0).ok());
  refused("QUOTA_EXCEEDED", [&] { return jobs_->redrive("default", plain, {"op", "x"}, 0); });
  refused("RESOURCE_NOT_FOUND", [&] { return jobs_->redrive("other", plain, {"op", "x"}, 0); });
  refused("INVALID_FIELD", [&] { return jobs_->redrive("default", plain, {"", "x"}, 0); });

  ASSERT_TRUE(jobs_->purge_mark("default", plain, 0).ok());
  refused("JOB_STATE_CONFLICT", [&] { return jobs_->redrive("default", plain, {"op", "x"}, 0); });
}

TEST_F(ChangeTest, UpdateChangesWhatItNamesAndKnowsTheEtag) {
  const auto ended = failed();
  const auto id = submit();
  const std::string etag = std::to_string(job(id).revision);
  const JobRepository::Update update{etag, std::nullopt, std::string("me\0ta", 5), "new name"};
  ASSERT_TRUE(jobs_->update("default", id, update).ok());
  EXPECT_EQ(job(id).metadata, std::string("me\0ta", 5));
  EXPECT_EQ(job(id).name, "new name");
  EXPECT_EQ(job(id).priority, 4);
  EXPECT_EQ(job(id).revision, std::stoll(etag) + 1);
  refused("ETAG_MISMATCH", [&] { return jobs_->update("default", id, update); });
  refused("INVALID_FIELD", [&] { return jobs_->update("default", id, {"", 10, {}, {}}); });
  refused("RESOURCE_NOT_FOUND", [&] { return jobs_->update("other", id, {"", 1, {}, {}}); });
  refused("JOB_STATE_CONFLICT", [&] { return jobs_->update("default", ended, {"", 1, {}, {}}); });
  EXPECT_TRUE(jobs_->update("default", ended, {"", {}, {}, "kept"}).ok());
}

// Pause, resume and update are known by their request_id, whatever has happened since.
TEST_F(ChangeTest, RepeatedRequestsHaveTheirFirstResult) {
  const auto id = submit();
  EXPECT_EQ(jobs_->pause("default", id, {"p", "x"})->state, "PAUSED");
  EXPECT_EQ(jobs_->resume("default", id, {"r", "x"})->state, "READY");
  EXPECT_TRUE(jobs_->pause("default", id, {"p", "x"})->replayed);
  EXPECT_TRUE(jobs_->resume("default", id, {"r", "x"})->replayed);
  EXPECT_EQ(state(id), "READY");
  EXPECT_EQ(jobs_->pause("default", id, {"p", "y"}).status().reason(), "IDEMPOTENCY_CONFLICT");
  EXPECT_FALSE(jobs_->update("default", id, {"", 7, {}, {}}, {"u", "x"})->replayed);
  EXPECT_FALSE(jobs_->update("default", id, {"", 2, {}, {}}, {"v", "x"})->replayed);
  EXPECT_TRUE(jobs_->update("default", id, {"", 7, {}, {}}, {"u", "x"})->replayed);
  EXPECT_EQ(job(id).priority, 2);
}

TEST_F(ChangeTest, ACheckpointIsAskedForToldAndAnswered) {
  const auto claimed = running();
  offer(claimed, 1, "ck-1");
  EXPECT_EQ(asked(claimed.id, "ftckpt-a").state, Asked::State::kNone);
  EXPECT_EQ(jobs_->ask_checkpoint("default", claimed.id, "ftckpt-a")->checkpoint_id, "ftckpt-a");
  // Whoever comes while it is on its way waits for the same one.
  EXPECT_EQ(jobs_->ask_checkpoint("default", claimed.id, "ftckpt-b")->checkpoint_id, "ftckpt-a");
  // A late repeat of an older beat must not tell of it: nothing would be known of its answer.
  EXPECT_EQ(offer(claimed, 1, "ck-1").checkpoint_request, "");
  // One that was on its way before the worker knew is no answer, nor is the same one again.
  EXPECT_EQ(offer(claimed, 2, "ck-2").checkpoint_request, "ftckpt-a");
  EXPECT_EQ(offer(claimed, 3, "ck-2").checkpoint_request, "ftckpt-a");
  EXPECT_EQ(asked(claimed.id, "ftckpt-a").state, Asked::State::kPending);
  EXPECT_EQ(offer(claimed, 4, "ck-4").checkpoint_request, "");
  const Asked written = asked(claimed.id, "ftckpt-a");
  EXPECT_EQ(written.state, Asked::State::kWritten);
  EXPECT_EQ(written.checkpoint.uri, "ck-4");
  EXPECT_EQ(written.checkpoint.manifest_sha256, "sha of ck-4");
  EXPECT_EQ(written.checkpoint.step, 4);
  EXPECT_EQ(written.at_ms, clock_.now_ms());
  EXPECT_EQ(job(claimed.id).checkpoint.uri, "ck-4");
}

// Nobody can go on training from what is kept for the gates; as the job's pointer it is right.
TEST_F(ChangeTest, WhatIsKeptForTheGatesIsNoAnswer) {
  const auto claimed = running();
  ASSERT_TRUE(jobs_->ask_checkpoint("default", claimed.id, "ftckpt-a").ok());
  EXPECT_EQ(offer(claimed, 1, "").checkpoint_request, "ftckpt-a");
  JobRepository::Beat beat{"w1", claimed.id, claimed.epoch, 2, "EVALUATING", "", {}, {}};
  beat.checkpoint = {"gates-0", "sha", 9, false};
  EXPECT_EQ(jobs_->beat(beat)->checkpoint_request, "ftckpt-a");
  EXPECT_EQ(job(claimed.id).checkpoint.uri, "gates-0");
  JobRepository::Finish release{
      "w1", claimed.id, claimed.epoch, "release", "", "", "", {"gates-1", "sha", 9, false}};
  ASSERT_TRUE(jobs_->finish(release).ok());
  EXPECT_EQ(asked(claimed.id, "ftckpt-a").state, Asked::State::kPending);
  EXPECT_EQ(claim("w1").job.checkpoint.uri, "gates-1");
}

TEST_F(ChangeTest, ACheckpointRequestOutlivesTheAttemptButNotTheJob) {
  const auto first = running();
  ASSERT_TRUE(jobs_->ask_checkpoint("default", first.id, "ftckpt-a", {"r", "x"}).ok());
  EXPECT_EQ(offer(first, 1, "").checkpoint_request, "ftckpt-a");
  ASSERT_EQ(finish(first, "w1", "crash").state, "READY");
  refused("JOB_STATE_CONFLICT",
          [&] { return jobs_->ask_checkpoint("default", first.id, "ftckpt-b"); });
  const auto again = jobs_->ask_checkpoint("default", first.id, "ftckpt-c", {"r", "x"});
  EXPECT_TRUE(again->replayed);
  EXPECT_EQ(again->checkpoint_id, "ftckpt-a");

  const auto second = claim("w1").job;
  EXPECT_EQ(offer(second, 1, "ck-1").checkpoint_request, "ftckpt-a");
  ASSERT_EQ(finish(second, "w1", "success").state, "SUCCEEDED");
  EXPECT_EQ(asked(first.id, "ftckpt-a").state, Asked::State::kNone);
  refused("JOB_STATE_CONFLICT",
          [&] { return jobs_->ask_checkpoint("default", first.id, "ftckpt-b"); });
}

TEST_F(ChangeTest, TheLastCheckpointOfAnAttemptAnswersToo) {
  const auto claimed = running();
  ASSERT_TRUE(jobs_->ask_checkpoint("default", claimed.id, "ftckpt-a").ok());
  offer(claimed, 1, "");
  JobRepository::Finish release{"w1", claimed.id, claimed.epoch,        "release", "",
                                "",   "",         {"ck-last", "sha", 9}};
  ASSERT_TRUE(jobs_->finish(release).ok());
  EXPECT_EQ(asked(claimed.id, "ftckpt-a").checkpoint.uri, "ck-last");
}

TEST_F(ChangeTest, OnlyTheLast64AskedCheckpointsAreKept) {
  const auto claimed = running();
  for (int i = 0; i < 66; ++i) {
    const std::string n = std::to_string(i);
    ASSERT_TRUE(jobs_->ask_checkpoint("default", claimed.id, "ftckpt-" + n).ok());
    offer(claimed, 2 * i + 1, "");
    clock_.advance_ms(1);
    offer(claimed, 2 * i + 2, "ck-" + n);
  }
  EXPECT_EQ(server().call({"HLEN", store_->key("ckpts:" + claimed.id)}).as_int(), 64);
  EXPECT_EQ(asked(claimed.id, "ftckpt-1").state, Asked::State::kNone);
  EXPECT_EQ(asked(claimed.id, "ftckpt-2").state, Asked::State::kWritten);
}

TEST_F(ChangeTest, AnArchivedLogKeepsItsEndAndWhatIsNotArchived) {
  const auto claimed = running();
  JobRepository::Beat beat{"w1", claimed.id, claimed.epoch, 1, "TRAINING", "", {}, {}};
  beat.events.assign(118, {0, "INFO", "metrics", "m", "d"});
  ASSERT_TRUE(jobs_->beat(beat).ok());  // with job_queued and job_start: 120
  const auto first_kept = [&] { return jobs_->log(claimed.id, 0, 1)->front().sequence; };
  EXPECT_TRUE(*jobs_->archived(claimed.id, 30));
  EXPECT_EQ(first_kept(), 31);
  EXPECT_EQ(job(claimed.id).archived, 30);
  EXPECT_TRUE(*jobs_->archived(claimed.id, 120));
  EXPECT_EQ(first_kept(), 71);
  const std::string before = support::dump_all(server());
  EXPECT_TRUE(*jobs_->archived(claimed.id, 120));
  EXPECT_TRUE(*jobs_->archived(claimed.id, 5));  // late
  EXPECT_FALSE(*jobs_->archived("ftjob-none", 5));
  EXPECT_EQ(support::dump_all(server()), before);
  EXPECT_TRUE(*jobs_->archived(claimed.id, 1'000'000));  // more than there are
  EXPECT_EQ(job(claimed.id).archived, 120);
}

TEST_F(ChangeTest, FinishedJobsOfAllTenantsComeInPagesByTheirEnd) {
  std::vector<std::string> ended;
  for (const std::string tenant : {"alice", "bob", "alice", "bob", "carol"}) {
    const auto id = submit(tenant);
    if (ended.size() != 2) clock_.advance_ms(1);  // two end in the same millisecond
    ASSERT_TRUE(jobs_->cancel(tenant, id, "").ok());
    ended.push_back(id);
  }
  ASSERT_TRUE(jobs_->archived(ended[1], 2).ok());
  std::vector<std::string> seen;
  int64_t ms = -1;
  std::string id;
  while (true) {
    const auto page = *jobs_->finished(ms, id, 2);
    for (const auto& job : page) {
      seen.push_back(job.id);
      EXPECT_EQ(job.sequence, 2);
      EXPECT_EQ(job.archived, job.id == ended[1] ? 2 : 0);
      EXPECT_FALSE(job.purging);
      ms = job.finished_ms;
      id = job.id;
    }
    if (page.size() < 2) break;
  }
  EXPECT_EQ(seen, ended);
}

TEST_F(ChangeTest, APurgedJobLeavesNoKeyOfItsOwn) {
  put_file("file-1");
  NewJob job;
  job.files = {"file-1"};
  job.unique_name = "one";
  job.adapter = "ft:base:default::1";
  const auto claimed = running(job);
  ASSERT_TRUE(jobs_->ask_checkpoint("default", claimed.id, "ftckpt-a").ok());
  offer(claimed, 1, "");
  offer(claimed, 2, "ck-2");
  refused("JOB_STATE_CONFLICT", [&] { return jobs_->purge_mark("default", claimed.id, 0); });
  ASSERT_EQ(finish(claimed, "w1", "success").state, "SUCCEEDED");
  refused("JOB_STATE_CONFLICT", [&] { return jobs_->purge_commit("default", claimed.id); });
  refused("RESOURCE_NOT_FOUND", [&] { return jobs_->purge_mark("other", claimed.id, 0); });

  const RequestKey request{"delete", "x"};
  EXPECT_EQ(*jobs_->purge_mark("default", claimed.id, 0, request), Purge::kDone);
  EXPECT_TRUE(this->job(claimed.id).purging);
  refused("JOB_STATE_CONFLICT", [&] {
    return jobs_->update("default", claimed.id, {"", {}, {}, "x"});
  });
  EXPECT_EQ(*jobs_->purge_commit("default", claimed.id, request), Purge::kDone);
  EXPECT_EQ(*jobs_->purge_mark("default", claimed.id, 0, request), Purge::kReplayed);
  EXPECT_EQ(*jobs_->purge_commit("default", claimed.id, request), Purge::kReplayed);
  EXPECT_EQ(jobs_->get("default", claimed.id).status().reason(), "RESOURCE_NOT_FOUND");
  for (const Reply& key : server().call({"KEYS", "*" + claimed.id + "*"}).elements)
    ADD_FAILURE() << key.text << " is left";
  for (const char* set : {"done", "dead", "tjobs:default", "fileuse:file-1"})
    EXPECT_EQ(zcard(set), 0) << set;
  // What it published stays until it is deleted itself.
  EXPECT_TRUE(adapters_->get("default", job.adapter).ok());
}

TEST_F(ChangeTest, TheJanitorTakesOnlyWhatIsOlderThanADay) {
  constexpr int64_t kDay = 86'400'000;
  const auto id = failed();
  refused("INVALID_FIELD", [&] { return jobs_->purge_mark("", id, kDay - 1); });
  refused("JOB_STATE_CONFLICT", [&] { return jobs_->purge_mark("", id, kDay); });
  clock_.advance_ms(kDay);
  EXPECT_EQ(*jobs_->purge_mark("", id, kDay), Purge::kDone);
  EXPECT_EQ(*jobs_->purge_mark("", id, kDay), Purge::kDone);
  EXPECT_TRUE(jobs_->finished(-1, "", 10)->front().purging);
  EXPECT_FALSE(*jobs_->archived(id, 1)) << "nobody will read its archive";
  EXPECT_TRUE(*jobs_->exist({{id, 0}}));
  EXPECT_EQ(*jobs_->purge_commit("", id), Purge::kDone);
  EXPECT_FALSE(*jobs_->exist({{id, 0}}));
  EXPECT_EQ(*jobs_->purge_commit("", id), Purge::kGone);
}

TEST_F(ChangeTest, AnAdapterStaysThroughEachLifeOfAJobThatNeedsIt) {
  NewJob maker;
  maker.adapter = "ft:base:default::1";
  ASSERT_EQ(finish(running(maker), "w1", "success").state, "SUCCEEDED");
  NewJob job;
  job.adapters = {maker.adapter};
  const auto first = running(job);
  const auto in_use = [&] { return adapters_->remove("default", maker.adapter); };
  refused("ADAPTER_IN_USE", in_use);
  EXPECT_EQ(in_use().status().metadata().at(0),
            (std::pair<std::string, std::string>("job", first.id)));
  ASSERT_EQ(finish(first, "w1", "release").state, "READY");
  refused("ADAPTER_IN_USE", in_use);
  ASSERT_EQ(finish(claim("w1").job, "w1", "fail_final").state, "FAILED");
  ASSERT_TRUE(jobs_->redrive("default", first.id, {"op-1", "x"}, 0).ok());
  refused("ADAPTER_IN_USE", in_use);
  ASSERT_EQ(finish(claim("w1").job, "w1", "fail_final").state, "FAILED");
  ASSERT_TRUE(in_use().ok()) << "nobody lives who needs it";
  refused("RESOURCE_NOT_FOUND", [&] {
    return jobs_->redrive("default", first.id, {"op-2", "x"}, 0);
  });
  refused("RESOURCE_NOT_FOUND", [&] {
    JobRepository::Submission late;
    late.request = {"late", "x"};
    job.id = "ftjob-late";
    late.jobs = {job};
    return jobs_->submit("default", late);
  });
}

TEST_F(ChangeTest, AnAdapterIsForgottenUnlessItIsToBeHeld) {
  NewJob job;
  job.adapter = "ft:base:default::1";
  ASSERT_EQ(finish(running(job), "w1", "success").state, "SUCCEEDED");
  const int64_t revision = *workers_->routes_revision();
  ASSERT_TRUE(adapters_->desire("default", job.adapter, true).ok());
  refused("ADAPTER_IN_USE", [&] { return adapters_->remove("default", job.adapter); });
  refused("RESOURCE_NOT_FOUND", [&] { return adapters_->remove("other", job.adapter); });
  ASSERT_TRUE(adapters_->desire("default", job.adapter, false).ok());
  const auto removed = adapters_->remove("default", job.adapter, {"r", "x"});
  ASSERT_TRUE(removed.ok()) << removed.status().to_string();
  EXPECT_FALSE(removed->uri.empty());
  EXPECT_TRUE(adapters_->remove("default", job.adapter, {"r", "x"})->replayed);
  EXPECT_TRUE(adapters_->list("default", {}, 10)->empty());
  EXPECT_TRUE(workers_->routes()->adapters.empty());
  EXPECT_GT(*workers_->routes_revision(), revision);
}

}  // namespace
}  // namespace dex::store
