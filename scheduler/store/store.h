#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/store/records.h"
#include "scheduler/store/redis.h"
#include "services/base/status.h"

namespace dex::store {

// Times of jobs.md §4 that the store itself needs.
struct StoreTimes {
  int64_t lease_ms = 30000;
  int64_t settle_ms = 30000;
  int64_t gap_ms = 20000;
  int64_t crash_backoff_ms = 30000;
  int64_t retry_backoff_ms = 30000;
  int64_t worker_timeout_ms = 60000;
  int64_t idempotency_ms = 24 * 3600 * 1000;
};

// One shard of the queue. The repositories of this room speak through it. Thread-safe; every call
// blocks for a round trip, at most Redis::Options::patience.
class Store {
 public:
  struct Options {
    Redis::Options redis;  // on_connect is set here
    std::string shard = "s0";
    StoreTimes times;
    // The clock handed to scripts in ms; unset: Redis' own. Tests set it, with cfg.testclock = 1.
    std::function<int64_t()> clock_ms;
    // Scripts instead of the built-in ones, all of them; null: all_scripts(). It outlives the
    // store. Tests run mutants through it.
    const std::vector<Script>* scripts = nullptr;
  };
  // Never connects: the first call does, so a scheduler can start before its Redis.
  explicit Store(Options options);

  // Runs lua/<name>.lua. An unexpected first word (BADCLOCK, BADARG, …) is left to the caller.
  base::Result<Reply> run(std::string_view name, std::vector<std::string> args);
  base::Result<Reply> command(const std::vector<std::string>& args) { return redis_.command(args); }
  [[nodiscard]] std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  [[nodiscard]] const StoreTimes& times() const { return options_.times; }
  [[nodiscard]] const std::string& prefix() const { return prefix_; }

  // Whether this Redis can be used at all, asked once before a scheduler starts.
  // FAILED_PRECONDITION says what the operator must change: STORE_TOO_OLD (Redis before 7),
  // STORE_TOO_NEW (data of a newer scheduler), STORE_REFUSED (login or rights), STORE_NOT_DURABLE
  // (durability()). UNAVAILABLE: it does not answer, or not yet; a scheduler may start all the
  // same.
  base::Status preflight();
  // What a Redis must be to keep promise P1: AOF on and writing, fsync always, noeviction. Empty
  // when it is; else what is wrong, in words.
  base::Result<std::string> durability();
  // used_memory / maxmemory, 0 without a limit.
  base::Result<double> memory_ratio();

  // The ids that this request_id has made within StoreTimes::idempotency_ms; empty: none.
  // ALREADY_EXISTS IDEMPOTENCY_CONFLICT when it came with another request.
  base::Result<std::vector<std::string>> made_by(const std::string& tenant,
                                                 const RequestKey& request);

  struct Swept {
    int64_t pulled_back = 0, deadlines = 0, leases = 0, delayed = 0, uncapped = 0, workers_lost = 0;
    bool settling = false;
    int64_t news = 0;     // jobs that became READY or terminal
    int64_t orphans = 0;  // set members that disagreed with their job, removed: reconcile() is due
    struct End {
      std::string pool, kind, state, why_code;
      bool lease = false;  // the worker was lost; else the deadline was over
    };
    std::vector<End> ends;
  };
  // Does what time alone changes (T2, T9 …), until nothing is left; after 10,000 of a kind the rest
  // waits for the next call.
  base::Result<Swept> sweep();
  // Repairs sets that disagree with a job's state; answers how many members were wrong (0 in a
  // healthy store). Reads every job once, which takes minutes over 100,000: reconciler.h is the
  // same in parts.
  base::Result<int64_t> reconcile();

  // A tenant's records of a kind (job, file, adapter), newest first, at most `count` (≤ 100) after
  // `cursor`: rows of lua/list.lua. Fewer: there are no more. Large ones come in several replies.
  base::Result<std::vector<Reply>> list(const std::string& kind, const std::string& tenant,
                                        Cursor cursor, int count);

  struct PoolStats {
    std::string pool;
    double oldest_ready_seconds = 0;
  };
  // Jobs of which core::public_state would say the same.
  struct JobCount {
    int64_t count = 0;
    std::string pool;  // "other": beyond the 1000 of a state that are looked at one by one
    std::string state, want, phase;
    std::string progress;  // opaque
  };
  struct Stats {
    std::vector<PoolStats> pools;
    std::vector<JobCount> jobs;                                // that are not terminal
    std::vector<std::pair<std::string, std::string>> workers;  // pools, state
  };
  base::Result<Stats> stats();

  // Weight and limits of a tenant; 0 GPU-seconds a day: no limit.
  base::Status set_tenant(const std::string& tenant, double weight, int max_queued, int max_running,
                          double gpu_seconds_a_day);
  void close() { redis_.close(); }

 private:
  base::Status hello(Connection& connection);
  [[nodiscard]] std::string clock() const;
  [[nodiscard]] const Script& script(std::string_view name) const;

  const Options options_;
  const std::string prefix_;
  Redis redis_;
};

base::Status idempotency_conflict(const std::string& made);
// The reply's first word was none that the caller knows.
base::Status unexpected(std::string_view script, const Reply& reply);

}  // namespace dex::store
