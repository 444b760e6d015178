#include "tests/support/invariants.h"

#include <cmath>
#include <cstdlib>
#include <set>

namespace dex::support {

namespace {

using Fields = StoreSnapshot::Fields;
using Members = StoreSnapshot::Members;

// The sets of jobs.md §2.
const std::map<std::string, std::vector<std::string>> kSetsOf = {
    {"DELAYED", {"delayed", "twait"}},
    {"READY", {"ready", "rq", "inflight", "twait"}},
    {"RUNNING", {"lease", "inflight", "trun"}},
    {"CANCELLING", {"lease", "inflight", "trun"}},
    {"PAUSED", {"paused", "twait"}},
    {"SUCCEEDED", {"done"}},
    {"FAILED", {"done", "dead"}},
    {"CANCELLED", {"done"}}};

// What each event may do to a state; "-" is no job.
const std::map<std::string, std::set<std::string>> kStepsOf = {
    {"submit", {"- READY", "- DELAYED"}},
    {"due", {"DELAYED READY"}},
    {"claim", {"READY RUNNING"}},
    {"success", {"RUNNING SUCCEEDED", "CANCELLING SUCCEEDED"}},
    {"fail_retry",
     {"RUNNING READY", "RUNNING DELAYED", "RUNNING PAUSED", "RUNNING FAILED",
      "CANCELLING CANCELLED"}},
    {"fail_final", {"RUNNING FAILED", "CANCELLING CANCELLED"}},
    {"crash",
     {"RUNNING READY", "RUNNING DELAYED", "RUNNING PAUSED", "RUNNING FAILED",
      "CANCELLING CANCELLED"}},
    {"oom", {"RUNNING READY", "RUNNING PAUSED", "RUNNING FAILED", "CANCELLING CANCELLED"}},
    {"disk_full", {"RUNNING READY", "RUNNING PAUSED", "CANCELLING CANCELLED"}},
    {"release", {"RUNNING READY", "RUNNING PAUSED", "RUNNING FAILED", "CANCELLING CANCELLED"}},
    {"paused", {"RUNNING PAUSED", "RUNNING READY", "CANCELLING CANCELLED"}},
    {"cancelled",  // the worker's word or the client's
     {"CANCELLING CANCELLED", "RUNNING CANCELLING", "READY CANCELLED", "DELAYED CANCELLED",
      "PAUSED CANCELLED"}},
    {"deadline_exceeded",
     {"RUNNING CANCELLING", "READY CANCELLED", "DELAYED CANCELLED", "PAUSED CANCELLED"}},
    {"lease_expired",
     {"RUNNING READY", "RUNNING DELAYED", "RUNNING PAUSED", "RUNNING FAILED",
      "CANCELLING CANCELLED"}},
    {"pause", {"READY PAUSED", "DELAYED PAUSED"}},
    {"resume", {"PAUSED READY"}},
    {"redrive", {"FAILED READY"}},
    {"reprio", {"READY READY"}},
    {"purge", {"SUCCEEDED -", "FAILED -", "CANCELLED -"}}};

class SetsOracle {
 public:
  SetsOracle(const StoreSnapshot& store, int64_t now_ms) : store_(store), now_ms_(now_ms) {}

  std::vector<std::string> judge() {
    for (const auto& [id, job] : store_.jobs) check_job(id, job);
    check_members();
    check_strangers();
    check_rings();
    check_workers();
    return std::move(wrong_);
  }

 private:
  void say(const std::string& text) { wrong_.push_back(text); }

  static std::string key_of(const std::string& set, const Fields& job) {
    if (set == "ready" || set == "inflight") return set + ":" + text_of(job, "pool");
    if (set == "rq") return "rq:" + text_of(job, "pool") + ":" + text_of(job, "tenant");
    if (set == "twait" || set == "trun" || set == "tjobs") {
      return set + ":" + text_of(job, "tenant");
    }
    return set;
  }

  double score_of(const std::string& set, const Fields& job) const {
    if (set == "delayed") return number_of(job, "due_ms");
    if (set == "lease") return number_of(job, "lease_ms");
    if (set == "done" || set == "dead") return number_of(job, "finished_ms");
    if (set == "deadline") return number_of(job, "deadline_ms");
    if (set == "tjobs") return number_of(job, "created_ms");
    const double place = number_of(job, "enter_ms");
    const Fields& cfg = store_.hash("cfg");
    const double boost = cfg.contains("prio_boost_ms") ? number_of(cfg, "prio_boost_ms") : 600000;
    return set == "ready" || set == "rq" ? place - number_of(job, "prio") * boost : place;
  }

  void check_job(const std::string& id, const Fields& job) {
    const std::string& state = text_of(job, "state");
    if (!kSetsOf.contains(state)) return say(id + " has unknown state '" + state + "'");
    const bool terminal = is_terminal(state);
    std::vector<std::string> want = kSetsOf.at(state);
    want.emplace_back("tjobs");
    if (number_of(job, "deadline_ms") > 0 && !terminal && state != "CANCELLING") {
      want.emplace_back("deadline");
    }
    for (const std::string& set : want) {
      const std::string key = key_of(set, job);
      const Members& members = store_.zset(key);
      const auto found = members.find(id);
      if (found == members.end()) {
        say(id + " is " + state + " but not in " + key);
      } else if (found->second != score_of(set, job)) {
        say(id + " has a wrong score in " + key);
      }
      expected_[key].insert(id);
    }
    const bool leased = state == "RUNNING" || state == "CANCELLING";
    for (const char* field : {"worker", "lease_ms", "charged"}) {
      if (leased != job.contains(field)) say(id + " is " + state + ", its " + field + " disagrees");
    }
    check_belongings(id, job, terminal);
  }

  // What a job has besides its places: spec, log, adapter record, name, files.
  void check_belongings(const std::string& id, const Fields& job, bool terminal) {
    if (!store_.strings.contains("spec:" + id)) say(id + " has no spec");
    const auto log = store_.streams.find("log:" + id);
    if (log == store_.streams.end()) {
      say(id + " has no log");
    } else if (log->second.last != text_of(job, "seq") + "-0") {
      say(id + " has the log entry " + log->second.last + ", its seq is " + text_of(job, "seq"));
    } else if (number_of(job, "archived") == 0 && number_of(job, "seq") < 4000 &&
               static_cast<double>(log->second.length) != number_of(job, "seq")) {
      say(id + " lost entries of its log");
    }
    const std::string& adapter = text_of(job, "adapter");
    if (const Fields& made = store_.hash("adapter:" + adapter); !adapter.empty() && !made.empty()) {
      if (text_of(job, "state") != "SUCCEEDED") say(id + " did not succeed and has an adapter");
      if (text_of(made, "epoch") != text_of(job, "fin_epoch") || text_of(made, "job") != id ||
          text_of(made, "uri") != text_of(job, "result_uri")) {
        say(adapter + " is not the result of its job's last attempt");
      }
      if (!store_.zset("tadapters:" + text_of(job, "tenant")).contains(adapter)) {
        say(adapter + " is in no list");
      }
    }
    const std::string& name = text_of(job, "uniq");
    if (!name.empty() && !terminal) {
      const std::string key = "uniq:" + text_of(job, "tenant") + ":" + name;
      const auto holder = store_.strings.find(key);
      if (holder == store_.strings.end() || holder->second != id) say(id + " lost its name");
      expected_[key].insert(id);
    }
    for (const std::string& file : words_of(text_of(job, "files"))) {
      if (terminal) continue;
      expected_["fileuse:" + file].insert(id);
      if (!store_.hashes.contains("file:" + file)) say(id + " lives and its file is gone");
    }
    for (const std::string& needed : words_of(text_of(job, "uses"))) {
      if (terminal) continue;
      expected_["adapteruse:" + needed].insert(id);
      if (!store_.hashes.contains("adapter:" + needed)) say(id + " lives and its adapter is gone");
    }
  }

  // Nobody is missing (scores of `fileuse` and `adapteruse` are free) and nobody is in a set
  // without belonging there.
  void check_members() {
    static const std::set<std::string> others = {"ring",      "workers", "capped", "tfiles",
                                                 "tadapters", "desired", "hooks",  "tkeys"};
    for (const auto& [key, ids] : expected_) {
      if (!key.starts_with("fileuse:") && !key.starts_with("adapteruse:")) continue;
      for (const std::string& id : ids) {
        if (!store_.zset(key).contains(id)) say(id + " is not in " + key);
      }
    }
    for (const auto& [name, members] : store_.zsets) {
      if (others.contains(name.substr(0, name.find(':')))) continue;
      for (const auto& [member, score] : members) {
        if (!expected_[name].contains(member)) say(member + " does not belong in " + name);
      }
    }
  }

  void check_strangers() {
    const auto ownerless = [&](const std::string& name) {
      for (const std::string family : {"spec:", "log:", "ckpts:"}) {
        if (name.starts_with(family) && !store_.jobs.contains(name.substr(family.size()))) {
          say(name + " has no job");
        }
      }
    };
    for (const auto& [name, value] : store_.strings) {
      ownerless(name);
      if (name.starts_with("uniq:") && !expected_[name].contains(value)) {
        say(name + " is held by " + value + ", which does not live or has another name");
      }
    }
    for (const auto& [name, stream] : store_.streams) ownerless(name);
    for (const auto& [name, fields] : store_.hashes) ownerless(name);
  }

  // I7: in the ring exactly if something waits, running < limit and the day's seconds are not
  // spent.
  void check_rings() {
    std::set<std::string> tenants, pools;
    for (const auto& [id, job] : store_.jobs) {
      tenants.insert(text_of(job, "tenant"));
      pools.insert(text_of(job, "pool"));
    }
    for (const std::string& tenant : tenants) {
      const Fields& limits = store_.hash("tenant:" + tenant);
      const double most = limits.contains("max_running") ? number_of(limits, "max_running") : 2;
      const bool room = static_cast<double>(store_.zset("trun:" + tenant).size()) < most;
      const double day = std::floor(static_cast<double>(now_ms_) / 86400000);
      const bool spent = number_of(limits, "gpu_max_day") > 0 &&
                         number_of(limits, "gpu_day") == day &&
                         number_of(limits, "gpu_used") >= number_of(limits, "gpu_max_day");
      // A new day frees a tenant at the next sweep, so one whose day is over may lag.
      const bool lags = store_.zset("capped").contains(tenant);
      for (const std::string& pool : pools) {
        const bool waits = !store_.zset("rq:" + pool + ":" + tenant).empty();
        const auto found = store_.zset("ring:" + pool).find(tenant);
        const bool present = found != store_.zset("ring:" + pool).end();
        if (present != (waits && room && !spent) && !(lags && !present)) {
          say("tenant " + tenant + (present ? " is" : " is not") + " in ring:" + pool);
        }
        if (present && found->second != number_of(limits, "vt:" + pool)) {
          say("tenant " + tenant + " has another place in ring:" + pool + " than its virtual time");
        }
      }
    }
    for (const auto& [name, members] : store_.zsets) {
      if (!name.starts_with("ring:")) continue;
      for (const auto& [tenant, score] : members) {
        if (!tenants.contains(tenant)) say(tenant + " is in " + name + " without a job");
      }
    }
  }

  void check_workers() {
    const Members& alive = store_.zset("workers");
    for (const auto& [name, fields] : store_.hashes) {
      if (!name.starts_with("worker:")) continue;
      const bool gone = text_of(fields, "state") == "gone";
      if (gone == alive.contains(name.substr(7))) {
        say(name + " is " + text_of(fields, "state") + " and `workers` disagrees");
      }
    }
    for (const auto& [id, score] : alive) {
      if (!store_.hashes.contains("worker:" + id)) say(id + " is in `workers` without a record");
    }
  }

  const StoreSnapshot& store_;
  const int64_t now_ms_;
  std::map<std::string, std::set<std::string>> expected_;  // key → who belongs there
  std::vector<std::string> wrong_;
};

void append(std::vector<std::string>& to, const std::vector<std::string>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

std::vector<std::string> broken_sets(const StoreSnapshot& store, int64_t now_ms) {
  return SetsOracle(store, now_ms).judge();
}

std::vector<std::string> missing_adapters(const StoreSnapshot& store,
                                          const std::set<std::string>& deleted) {
  std::vector<std::string> wrong;
  for (const auto& [id, job] : store.jobs) {
    const std::string& adapter = text_of(job, "adapter");
    if (text_of(job, "state") == "SUCCEEDED" && !adapter.empty() && !deleted.contains(adapter) &&
        !store.hashes.contains("adapter:" + adapter)) {
      wrong.push_back(id + " succeeded and its adapter has no record");
    }
  }
  return wrong;
}

std::vector<std::string> broken_adapters(const StoreSnapshot& store) {
  std::vector<std::string> wrong;
  std::map<std::string, std::set<std::string>> lists;  // key → who belongs there
  for (const auto& [name, record] : store.hashes) {
    if (!name.starts_with("adapter:")) continue;
    const std::string id = name.substr(8);
    lists["tadapters:" + text_of(record, "tenant")].insert(id);
    const bool held = text_of(record, "desired") == "loaded" || text_of(record, "disabled") == "1";
    if (held) lists["desired"].insert(id);
  }
  for (const auto& [key, ids] : lists) {
    for (const std::string& id : ids) {
      if (!store.zset(key).contains(id)) wrong.push_back(id + " is not in " + key);
    }
  }
  for (const auto& [name, members] : store.zsets) {
    if (name != "desired" && !name.starts_with("tadapters:")) continue;
    for (const auto& [id, score] : members) {
      if (!lists[name].contains(id)) wrong.push_back(id + " does not belong in " + name);
    }
  }
  return wrong;
}

std::vector<std::string> EventHistory::add(const std::vector<StoreEvent>& events) {
  std::vector<std::string> wrong;
  for (const StoreEvent& event : events) {
    Life& life = lives_[event.job];
    const std::string from = life.state.empty() ? "-" : life.state;
    const std::string to = event.state.empty() ? "-" : event.state;
    const auto steps = kStepsOf.find(event.why);
    if (steps == kStepsOf.end() || !steps->second.contains(from + " " + to)) {
      wrong.push_back(event.job + " went from '" + from + "' to '" + to + "' by '" + event.why +
                      "'");
    }
    if (event.why == "claim") {
      if (std::strtod(event.epoch.c_str(), nullptr) <= std::strtod(life.epoch.c_str(), nullptr)) {
        wrong.push_back(event.job + " ran with an epoch that did not grow");
      }
      life.epoch = event.epoch;
      life.worker = event.worker;
    }
    // Whatever ends an attempt was presented by its owner.
    const bool ends = (from == "RUNNING" || from == "CANCELLING") && to != "CANCELLING";
    if (ends && (event.epoch != life.epoch || event.worker != life.worker)) {
      wrong.push_back(event.job + " was ended by " + event.worker + " with epoch " + event.epoch);
    }
    if (to == "SUCCEEDED" && ++life.results > 1) wrong.push_back(event.job + " has two results");
    count(life, event);
    life.state = event.state;
    last_ = event.id;
  }
  return wrong;
}

// The counters of jobs.md §6; an attempt that was being cancelled counts nothing.
void EventHistory::count(Life& life, const StoreEvent& event) {
  if (event.why == "claim") ++life.attempts;
  if (event.why == "resume") life.fulls = 0;
  if (event.why == "redrive") {
    life.failures = life.crashes = life.preempts = life.ooms = life.fulls = 0;
  }
  if (life.state != "RUNNING") return;
  if (event.why == "fail_retry") ++life.failures;
  if (event.why == "crash" || event.why == "lease_expired") ++life.crashes;
  if (event.why == "release") ++life.preempts;
  if (event.why == "oom") ++life.ooms;
  if (event.why == "disk_full") ++life.fulls;
}

std::vector<std::string> EventHistory::states(const StoreSnapshot& store) const {
  std::vector<std::string> wrong;
  for (const auto& [id, job] : store.jobs) {
    const auto life = lives_.find(id);
    const std::string said = life == lives_.end() ? "" : life->second.state;
    if (said != text_of(job, "state")) {
      wrong.push_back(id + " is " + text_of(job, "state") + ", its last event says '" + said + "'");
    }
  }
  for (const auto& [id, life] : lives_) {
    if (!life.state.empty() && !store.jobs.contains(id)) wrong.push_back(id + " is lost");
  }
  // A request_id of a job that never was would refuse the request for a day.
  for (const auto& [name, fields] : store.hashes) {
    if (!name.starts_with("idem:")) continue;
    for (const std::string& id : words_of(text_of(fields, "ids"))) {
      const bool of_job = id.starts_with("ftjob-") || id.starts_with("eval-");
      if (of_job && !lives_.contains(id)) wrong.push_back(name + " names " + id + ", never made");
    }
  }
  return wrong;
}

std::vector<std::string> EventHistory::counters(const StoreSnapshot& store) const {
  std::vector<std::string> wrong;
  for (const auto& [id, job] : store.jobs) {
    const auto found = lives_.find(id);
    if (found == lives_.end()) continue;
    const Life& life = found->second;
    const std::map<std::string, int> counted = {
        {"attempt", life.attempts},  {"failures", life.failures}, {"crashes", life.crashes},
        {"preempts", life.preempts}, {"ooms", life.ooms},         {"fulls", life.fulls}};
    for (const auto& [field, n] : counted) {
      if (number_of(job, field) != n) {
        wrong.push_back(id + " has " + field + " = " + text_of(job, field) + ", its events say " +
                        std::to_string(n));
      }
    }
    if (life.attempts > 0 && text_of(job, "epoch") != life.epoch) {
      wrong.push_back(id + " has another epoch than its latest claim");
    }
  }
  return wrong;
}

std::vector<std::string> broken_invariants(const RedisCall& call, int64_t now_ms) {
  const StoreSnapshot store = read_store(call);
  EventHistory history;
  std::vector<std::string> wrong = broken_sets(store, now_ms);
  append(wrong, history.add(store.events));
  append(wrong, history.states(store));
  return wrong;
}

std::vector<std::string> broken_invariants(RedisServer& server, int64_t now_ms) {
  return broken_invariants([&](const std::vector<std::string>& args) { return server.call(args); },
                           now_ms);
}

std::string dump_all(RedisServer& server) {
  const store::Reply rows =
      server.call({"EVAL",
                   "local keys, rows = redis.call('KEYS', '*'), {} "
                   "table.sort(keys) "
                   "for _, key in ipairs(keys) do "
                   "rows[#rows + 1] = key rows[#rows + 1] = redis.call('DUMP', key) end "
                   "return rows",
                   "0"});
  std::string all;
  for (const store::Reply& row : rows.elements) all += row.text + "\n";
  return all;
}

}  // namespace dex::support
