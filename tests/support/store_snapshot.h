#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "scheduler/store/reply.h"

namespace dex::support {

// One command to some Redis. It throws std::runtime_error on any error.
using RedisCall = std::function<store::Reply(const std::vector<std::string>&)>;

// One entry of the stream `events`: a transition as it was presented (jobs.md §1).
struct StoreEvent {
  std::string id, job, state, epoch, worker, why;
};

// Everything that a shard of the store holds at one moment, with plain types: what the tests' own
// judgement reads, so that it shares no code with the scripts. Names are keys without the prefix.
struct StoreSnapshot {
  using Fields = std::map<std::string, std::string>;
  using Members = std::map<std::string, double>;  // member → score
  struct Stream {
    int64_t length = 0;
    std::string last;  // id of the newest entry
  };

  std::map<std::string, Fields> jobs;    // by id: the hashes `job:<id>`
  std::map<std::string, Fields> hashes;  // all others
  std::map<std::string, Members> zsets;
  std::map<std::string, std::set<std::string>> sets;
  std::map<std::string, std::string> strings;
  std::map<std::string, Stream> streams;
  std::vector<StoreEvent> events;  // later than the one asked for
  std::string digest;              // of every key, value and expiry

  // Empty when missing.
  [[nodiscard]] const Fields& hash(const std::string& name) const;
  [[nodiscard]] const Members& zset(const std::string& name) const;
  // Members by rising score, then by name, as Redis orders them.
  [[nodiscard]] std::vector<std::string> ordered(const std::string& name) const;
};

// Fields of a hash; "" and 0 when missing.
const std::string& text_of(const StoreSnapshot::Fields& fields, const std::string& name);
double number_of(const StoreSnapshot::Fields& fields, const std::string& name);
bool is_terminal(const std::string& state);
std::vector<std::string> words_of(const std::string& text);

// One EVAL. `events_after`: id of the last event already seen; empty: all of them.
StoreSnapshot read_store(const RedisCall& call, const std::string& events_after = "",
                         const std::string& prefix = "dex:{s0}:");
// Only StoreSnapshot::digest, which is cheaper: two equal ones mean that no key has changed.
std::string digest_of_store(const RedisCall& call, const std::string& prefix = "dex:{s0}:");

}  // namespace dex::support
