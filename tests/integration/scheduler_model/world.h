#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scheduler/store/adapter_repository.h"
#include "scheduler/store/file_repository.h"
#include "scheduler/store/job_repository.h"
#include "scheduler/store/worker_repository.h"
#include "tests/integration/scheduler_model/command.h"
#include "tests/integration/scheduler_model/reference.h"
#include "tests/support/invariants.h"
#include "tests/support/manual_clock.h"
#include "tests/support/redis_server.h"

namespace dex::model {

// How often each answer came, by "<script> <word>".
using Tally = std::map<std::string, int>;

// Two schedulers on one Redis, three workers, three tenants, two pools, and a clock that moves when
// told. Each step is one call, half of them sent twice; after each the store is read whole and
// judged: the step by Reference, the store by the invariants of jobs.md §14.
class World {
 public:
  struct Options {
    const std::vector<store::Script>* scripts = nullptr;  // mutants; null: the built-in ones
    store::RedisAddress address;                          // empty: the server's, as its owner
  };
  // `server` is empty and outlives this object.
  World(support::RedisServer& server, Tally& tally, Options options);

  // What is wrong after the step, in words.
  std::vector<std::string> step(const Command& command);
  // What Store::reconcile() finds to repair: nothing.
  std::vector<std::string> end();

 private:
  struct Scheduler {
    explicit Scheduler(store::Store::Options options)
        : shard(std::move(options)), jobs(shard), files(shard), adapters(shard), workers(shard) {}
    store::Store shard;
    store::JobRepository jobs;
    store::FileRepository files;
    store::AdapterRepository adapters;
    store::WorkerRepository workers;
  };
  // An attempt as its worker remembers it; it may have been lost since.
  struct Attempt {
    std::string job, worker;
    int64_t epoch = 0, beats = 0;
  };
  enum class Repeat { kNever, kHalf };

  std::unique_ptr<Scheduler> new_scheduler();
  Scheduler& scheduler() { return *schedulers_[static_cast<size_t>(dice_.pick(2))]; }
  Reference reference() { return {current_, clock_.now_ms(), requests_, times_}; }
  void say(const std::string& text) { wrong_.push_back(text); }
  void act(const std::string& script, Expected expected, const std::function<std::string()>& call,
           Repeat repeat);
  void observe(const Expected& expected);

  // world_calls.cc
  void submit();
  store::NewJob random_job(const std::string& tenant);
  void claim(const std::string& worker);
  void beat(Attempt& attempt);
  void finish(const Attempt& attempt, const std::string& outcome);
  void random_finish();
  void cancel();
  void pause();
  void resume();
  void redrive();
  // Something that a redrive can be refused for.
  void obstruct_redrive(int aim);
  void update();
  void purge();
  void ask_checkpoint();
  void set_tenant();
  void worker_says();

  // world_records.cc
  void put_file();
  void remove_file();
  void archive();
  void ask_for_adapter();
  void desire_adapter(const std::string& id, bool loaded);
  void forget_adapter(const std::string& id);
  std::vector<std::string> adapters_of(const std::string& tenant) const;  // empty: of all
  void damage();
  // Changes one member of one set by hand. What it did, in words; empty: there was none.
  std::string spoil();

  void move_clock();
  void sweep();
  void make_zombie();
  void reconnect();
  void restart();

  std::string tenant() { return std::string(1, static_cast<char>('a' + dice_.pick(3))); }
  std::string worker() { return "w" + std::to_string(dice_.pick(3)); }
  std::string new_name(const std::string& prefix) { return prefix + std::to_string(++made_); }
  // A job in one of these states; if there is none, any job.
  std::string job_in(const std::vector<std::string>& states);
  std::string owner_of(const std::string& job);  // mostly
  store::RequestKey request(const std::string& op, const std::string& tenant, int percent);
  // The same, but with a chance of `again` percent one that some tenant has used, which is `tenant`
  // then.
  store::RequestKey request_again(const std::string& op, std::string& tenant, int percent,
                                  int again);
  std::optional<store::RequestKey> said_before(const std::string& op, std::string& tenant);
  [[nodiscard]] size_t live() const;

  support::RedisServer& server_;
  Tally& tally_;
  const Options options_;
  const support::RedisCall call_;
  const store::StoreTimes times_;
  support::ManualClock clock_;
  std::vector<std::unique_ptr<Scheduler>> schedulers_;
  Dice dice_{0};
  support::StoreSnapshot current_;
  support::EventHistory history_;
  Requests requests_;
  std::vector<Attempt> attempts_;
  std::set<std::string> forgotten_;  // adapters that were deleted
  std::vector<std::string> wrong_;
  int made_ = 0;
};

}  // namespace dex::model
