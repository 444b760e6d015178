// Every (state, script, outcome): what the state table says happens, and what it does not name
// changes nothing. The cases are made from the table; the state, the counters and the events are
// read with plain commands.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "scheduler/core/transitions.h"
#include "tests/integration/scheduler_store/store_fixture.h"
#include "tests/support/invariants.h"

namespace dex::store {
namespace {

using core::Guard;
using StoredFields = std::map<std::string, std::string>;

const std::string kTableJob = "ftjob-table";
constexpr int64_t kTenMinutes = 600'000;
constexpr int64_t kHour = 3'600'000;

struct TableCase {
  std::string state, script, outcome;
  const core::Transition* row;  // null: the table has none
};

std::vector<TableCase> table_cases() {
  std::vector<TableCase> cases;
  for (const std::string_view state : core::stored_states()) {
    for (const core::Act& act : core::acts()) {
      const TableCase one{std::string(state), std::string(act.script), std::string(act.outcome),
                          nullptr};
      if (!core::may_act(state, act.script, act.outcome)) cases.push_back(one);
      for (const core::Transition& row : core::transitions()) {
        if (row.from != state || row.script != act.script || row.outcome != act.outcome) continue;
        cases.push_back(one);
        cases.back().row = &row;
      }
    }
  }
  return cases;
}

std::string guard_word(Guard guard) {
  switch (guard) {
    case Guard::kAlways:
      return "always";
    case Guard::kAtLimit:
      return "at_limit";
    case Guard::kWantPause:
      return "want_pause";
    case Guard::kWantHold:
      return "want_hold";
    case Guard::kDelay:
      return "delay";
    case Guard::kMarked:
      return "marked";
  }
  return "?";
}

std::string case_name(const testing::TestParamInfo<TableCase>& info) {
  const TableCase& one = info.param;
  std::string name = (one.state.empty() ? "none" : one.state) + "_" + one.script;
  if (!one.outcome.empty()) name += "_" + one.outcome;
  return name + "_" + (one.row == nullptr ? "illegal" : guard_word(one.row->guard));
}

class TableTest : public StoreTest, public testing::WithParamInterface<TableCase> {
 protected:
  TableTest() { enlist("w1"); }

  // Calls that lead a new job there. It has always been claimed once, so that its former owner can
  // come back.
  void arrange(const std::string& state, bool hold) {
    if (state.empty()) return;
    NewJob job;
    job.id = kTableJob;
    job.deadline_ms = kHour;
    job.hold = hold;
    submit("default", job);
    claimed_ = claim("w1", "first").job;
    if (state == "READY") end("release");
    if (state == "DELAYED") end("fail_retry", kLongBackoff);
    if (state == "SUCCEEDED") end("success");
    if (state == "FAILED") end("fail_final");
    if (state == "PAUSED") {
      ASSERT_TRUE(jobs_->pause("default", kTableJob).ok());
      end("paused");
    }
    if (state == "CANCELLING" || state == "CANCELLED")
      ASSERT_TRUE(jobs_->cancel("default", kTableJob, "why").ok());
    if (state == "CANCELLED") end("cancelled");
    ASSERT_EQ(fields()["state"], state);
  }

  // Makes the row's guard true. Counters are set by hand: a hundred releases would say no more.
  void arrange_guard(const core::Transition& row) {
    const std::string key = store_->key("job:" + kTableJob);
    static const std::map<std::string, std::string> limits = {
        {"failures", "2"}, {"crashes", "2"}, {"ooms", "1"}, {"fulls", "3"}, {"preempts", "100"}};
    const std::string counter(row.counter);
    if (row.guard == Guard::kWantPause) ASSERT_TRUE(jobs_->pause("default", kTableJob).ok());
    if (row.guard == Guard::kMarked) ASSERT_TRUE(jobs_->purge_mark("default", kTableJob, 0).ok());
    if (row.guard == Guard::kAtLimit) server().call({"HSET", key, counter, limits.at(counter)});
    if (row.guard == Guard::kDelay && counter == "crashes")
      server().call({"HSET", key, counter, "1"});
  }

  StoredFields fields() {
    return server().call({"HGETALL", store_->key("job:" + kTableJob)}).fields();
  }
  int64_t events() { return server().call({"XLEN", store_->key("events")}).as_int(); }
  std::string last_event_state() {
    const Reply last = server().call({"XREVRANGE", store_->key("events"), "+", "-", "COUNT", "1"});
    return last.at(0).at(1).fields()["state"];
  }

  // What the store answers to one finish of the first claim: OK, DUP, LOST or a refusal's reason.
  std::string end(const std::string& outcome, double backoff_factor = 1) {
    JobRepository::Finish finish;
    finish.worker = "w1";
    finish.id = kTableJob;
    finish.epoch = claimed_.epoch;
    finish.outcome = outcome;
    finish.backoff_factor = backoff_factor;
    finish.why_code = "internal";
    finish.why = "it broke";
    if (outcome == "success") finish.result_uri = "jobs/default/" + kTableJob + "/final";
    const auto finished = jobs_->finish(finish);
    if (!finished.ok()) return finished.status().reason();
    return finished->lost ? "LOST" : finished->replayed ? "DUP" : "OK";
  }

  std::string pass(const std::string& outcome) {
    if (outcome == "lease") {  // sweeps as a scheduler does, past the settle window and the lease
      for (int i = 0; i < 9; ++i) {
        EXPECT_TRUE(store_->sweep().ok());
        clock_.advance_ms(5000);
      }
      return "OK";
    }
    // After a gap the settle window protects leases, so only what is due happens.
    clock_.advance_ms(outcome == "due" ? kTenMinutes : kHour);
    EXPECT_TRUE(store_->sweep().ok());
    return "OK";
  }

  std::string put_in(bool delay) {
    JobRepository::Submission submission;
    submission.request = {"again", "body"};
    submission.jobs.resize(1);
    submission.jobs[0].id = kTableJob;
    submission.jobs[0].delay_ms = delay ? kTenMinutes : 0;
    const auto submitted = jobs_->submit("default", submission);
    if (!submitted.ok()) return submitted.status().reason();
    return submitted->replayed ? "DUP" : "OK";
  }

  std::string worker_act(const std::string& script) {
    if (script == "claim") {
      const auto claimed = claim("w1", "second");
      return claimed.answer == JobRepository::ClaimAnswer::kJob ? "OK" : "NONE";
    }
    ClaimedJob job = claimed_;
    job.id = kTableJob;
    return beat(job, "w1", 1).verdict == JobRepository::Verdict::kLost ? "LOST" : "OK";
  }

  std::string purge_act(const std::string& outcome) {
    const auto purged = outcome == "mark" ? jobs_->purge_mark("default", kTableJob, 0)
                                          : jobs_->purge_commit("default", kTableJob);
    return purged.ok() ? "OK" : purged.status().reason();
  }

  // OK: done, or nothing to do; else the refusal. A second call with the same arguments repeats it.
  std::string act(const TableCase& one) {
    const bool delay = one.row != nullptr && one.row->guard == Guard::kDelay;
    const std::string& script = one.script;
    if (script == "submit") return put_in(delay);
    if (script == "claim" || script == "beat") return worker_act(script);
    if (script == "finish") return end(one.outcome, delay ? kLongBackoff : 0);
    if (script == "sweep") return pass(one.outcome);
    if (script == "purge") return purge_act(one.outcome);
    const auto changed = script == "cancel"   ? jobs_->cancel("default", kTableJob, "why")
                         : script == "pause"  ? jobs_->pause("default", kTableJob)
                         : script == "resume" ? jobs_->resume("default", kTableJob)
                         : script == "redrive"
                             ? jobs_->redrive("default", kTableJob, {"op-1", "x"}, 0)
                             : jobs_->update("default", kTableJob, {"", 8, {}, {}});
    if (!changed.ok()) return changed.status().reason();
    return changed->replayed ? "DUP" : "OK";
  }

  void check_counters(const core::Transition& row, const StoredFields& before,
                      const StoredFields& after) {
    if (before.empty() || after.empty()) return;
    for (const char* name : {"attempt", "failures", "crashes", "preempts", "ooms", "fulls"}) {
      const int64_t was = std::stoll(before.at(name)), is = std::stoll(after.at(name));
      const bool resets = row.script == "redrive" && std::string(name) != "attempt";
      EXPECT_EQ(is, resets ? 0 : was + (row.counter == name ? 1 : 0)) << name;
    }
  }

  static constexpr double kLongBackoff = 20;  // times the 30 s of StoreTimes: ten minutes
  ClaimedJob claimed_;
};

TEST_P(TableTest, DoesWhatTheTableSaysAndNothingElse) {
  const TableCase& one = GetParam();
  const bool legal = one.row != nullptr;
  ASSERT_NO_FATAL_FAILURE(arrange(one.state, legal && one.row->guard == Guard::kWantHold));
  if (legal) ASSERT_NO_FATAL_FAILURE(arrange_guard(*one.row));
  const StoredFields before = fields();
  const int64_t events_before = events();
  const std::string all_before = support::dump_all(server());
  const std::string word = act(one);

  if (!legal) {
    // These find what they ask for.
    static const std::set<std::string> nothing_to_do = {"CANCELLING cancel", "CANCELLED cancel",
                                                        "PAUSED pause"};
    const bool sweeps = one.script == "sweep";
    EXPECT_EQ(word == "OK", sweeps || nothing_to_do.contains(one.state + " " + one.script)) << word;
    EXPECT_EQ(fields(), before);
    EXPECT_EQ(events(), events_before);
    // A sweep always notes its time, so of it only the job is compared.
    if (!sweeps) EXPECT_EQ(support::dump_all(server()), all_before);
    return;
  }

  EXPECT_EQ(word, "OK");
  const StoredFields after = fields();
  EXPECT_EQ(after.contains("state") ? after.at("state") : "", one.row->to);
  check_counters(*one.row, before, after);
  EXPECT_EQ(events() - events_before, one.row->event ? 1 : 0);
  if (one.row->event) EXPECT_EQ(last_event_state(), one.row->to);

  // Sent twice (jobs.md §3): a sweep at the same time, everything else with the same arguments.
  const std::string all_after = support::dump_all(server());
  if (one.script == "sweep") {
    EXPECT_EQ(fields(), after);
    return;
  }
  const std::string again = act(one);
  EXPECT_EQ(support::dump_all(server()), all_after) << again;
  const bool gone = one.row->to.empty();  // purge commit
  EXPECT_TRUE(gone ? again == "RESOURCE_NOT_FOUND" : again == "OK" || again == "DUP") << again;
}

INSTANTIATE_TEST_SUITE_P(Cases, TableTest, testing::ValuesIn(table_cases()), case_name);

TEST(TableCasesTest, AreAllPairsOnce) {
  std::set<std::string> pairs;
  for (const TableCase& one : table_cases())
    pairs.insert(one.state + " " + one.script + " " + one.outcome);
  EXPECT_EQ(pairs.size(), core::stored_states().size() * core::acts().size());
}

}  // namespace
}  // namespace dex::store
