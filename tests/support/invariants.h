#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/redis_server.h"
#include "tests/support/store_snapshot.h"

// The oracle of jobs.md §14: what must hold of a store at any moment, judged here in C++ and
// written down a second time on purpose. Everything answers what is wrong, in words; empty: nothing
// is. The tests' store keeps its whole event stream: cfg.events_max = 0.
namespace dex::support {

// I1, I4, I7 and strangers: each job in exactly the sets of its state with the right scores, rings
// as jobs.md §5 has them, nothing that belongs to no job. `now_ms` is the store's clock.
std::vector<std::string> broken_sets(const StoreSnapshot& store, int64_t now_ms);

// A SUCCEEDED job with an adapter id whose record is missing, but for those that were deleted.
std::vector<std::string> missing_adapters(const StoreSnapshot& store,
                                          const std::set<std::string>& deleted = {});
// Each adapter is in its tenant's list, and in `desired` exactly if workers are to hold it; none
// that is gone is in either.
std::vector<std::string> broken_adapters(const StoreSnapshot& store);

// The life of every job as the event stream tells it.
class EventHistory {
 public:
  // Entries that follow those given before. I2: epochs of a job's claims grow; I3: one result, by
  // the latest claim; I5: every step is one of jobs.md §2.
  std::vector<std::string> add(const std::vector<StoreEvent>& events);
  // Each job is in the state that its last event says, and none is missing or has come without one.
  [[nodiscard]] std::vector<std::string> states(const StoreSnapshot& store) const;
  // Counters, attempts and epochs of each job are what its events add up to (jobs.md §6).
  [[nodiscard]] std::vector<std::string> counters(const StoreSnapshot& store) const;

  [[nodiscard]] const std::string& last() const { return last_; }  // id of the newest entry
  [[nodiscard]] bool knows(const std::string& job) const { return lives_.contains(job); }

 private:
  struct Life {
    std::string state, epoch, worker;  // the last two: of the latest claim
    int attempts = 0, failures = 0, crashes = 0, preempts = 0, ooms = 0, fulls = 0;
    int results = 0;
  };
  void count(Life& life, const StoreEvent& event);

  std::map<std::string, Life> lives_;
  std::string last_;
};

// All but the counters and missing_adapters(), over the whole event stream.
std::vector<std::string> broken_invariants(const RedisCall& call, int64_t now_ms);
std::vector<std::string> broken_invariants(RedisServer& server, int64_t now_ms);

// Every key with its value, for "a repeated call changes no key" (I8).
std::string dump_all(RedisServer& server);

}  // namespace dex::support
