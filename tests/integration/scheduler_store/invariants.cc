#include "tests/integration/scheduler_store/invariants.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace dex::store {

namespace {

const std::string kPrefix = "dex:{s0}:";

using Members = std::map<std::string, double>;  // member → score

// The sets of jobs.md §2, written down a second time on purpose.
const std::map<std::string, std::vector<std::string>> kSets = {
    {"DELAYED", {"delayed", "twait"}},
    {"READY", {"ready", "rq", "inflight", "twait"}},
    {"RUNNING", {"lease", "inflight", "trun"}},
    {"CANCELLING", {"lease", "inflight", "trun"}},
    {"PAUSED", {"paused", "twait"}},
    {"SUCCEEDED", {"done"}},
    {"FAILED", {"done", "dead"}},
    {"CANCELLED", {"done"}}};

// from → to of the transition table; "" is before the job exists.
const std::set<std::pair<std::string, std::string>> kSteps = {{"", "READY"},
                                                              {"", "DELAYED"},
                                                              {"DELAYED", "READY"},
                                                              {"READY", "RUNNING"},
                                                              {"RUNNING", "SUCCEEDED"},
                                                              {"CANCELLING", "SUCCEEDED"},
                                                              {"RUNNING", "READY"},
                                                              {"RUNNING", "DELAYED"},
                                                              {"RUNNING", "FAILED"},
                                                              {"RUNNING", "PAUSED"},
                                                              {"CANCELLING", "CANCELLED"},
                                                              {"READY", "CANCELLED"},
                                                              {"DELAYED", "CANCELLED"},
                                                              {"PAUSED", "CANCELLED"},
                                                              {"RUNNING", "CANCELLING"},
                                                              {"READY", "PAUSED"},
                                                              {"DELAYED", "PAUSED"},
                                                              {"PAUSED", "READY"}};

class Oracle {
 public:
  Oracle(support::RedisServer& server, int64_t now_ms) : server_(server), now_ms_(now_ms) {}

  std::vector<std::string> judge() {
    read();
    for (const auto& [id, job] : jobs_) check_sets(id, job);
    check_strangers();
    check_rings();
    check_events();
    return std::move(wrong_);
  }

 private:
  void say(const std::string& text) { wrong_.push_back(text); }

  void read() {
    for (const Reply& key : server_.call({"KEYS", kPrefix + "*"}).elements) {
      const std::string name = key.text.substr(kPrefix.size());
      const std::string type = server_.call({"TYPE", key.text}).text;
      if (name.starts_with("job:")) {
        jobs_[name.substr(4)] = server_.call({"HGETALL", key.text}).fields();
      } else if (type == "zset") {
        const Reply rows = server_.call({"ZRANGE", key.text, "0", "-1", "WITHSCORES"});
        for (size_t i = 0; i + 1 < rows.elements.size(); i += 2) {
          sets_[name][rows.str(i)] = std::stod(rows.str(i + 1));
        }
      } else {
        others_.insert(name);
      }
    }
  }

  using Job = std::map<std::string, std::string>;

  static std::string key_of(const std::string& set, const Job& job) {
    if (set == "ready" || set == "inflight") return set + ":" + job.at("pool");
    if (set == "rq") return "rq:" + job.at("pool") + ":" + job.at("tenant");
    if (set == "twait" || set == "trun" || set == "tjobs") return set + ":" + job.at("tenant");
    return set;
  }

  static double score_of(const std::string& set, const Job& job) {
    if (set == "delayed") return std::stod(job.at("due_ms"));
    if (set == "lease") return std::stod(job.at("lease_ms"));
    if (set == "done" || set == "dead") return std::stod(job.at("finished_ms"));
    if (set == "deadline") return std::stod(job.at("deadline_ms"));
    if (set == "tjobs") return std::stod(job.at("created_ms"));
    const double place = std::stod(job.at("enter_ms"));
    return set == "ready" || set == "rq" ? place - std::stod(job.at("prio")) * 600000 : place;
  }

  void check_sets(const std::string& id, const Job& job) {
    const std::string& state = job.at("state");
    if (!kSets.contains(state)) return say(id + " has unknown state " + state);
    std::vector<std::string> want = kSets.at(state);
    want.push_back("tjobs");
    const bool terminal = state == "SUCCEEDED" || state == "FAILED" || state == "CANCELLED";
    if (job.at("deadline_ms") != "0" && !terminal && state != "CANCELLING")
      want.push_back("deadline");
    for (const std::string& set : want) {
      const Members& members = sets_[key_of(set, job)];
      const auto found = members.find(id);
      if (found == members.end()) {
        say(id + " is " + state + " but not in " + key_of(set, job));
      } else if (found->second != score_of(set, job)) {
        say(id + " has a wrong score in " + key_of(set, job));
      }
      expected_[key_of(set, job)].insert(id);
    }
    if (!others_.contains("spec:" + id)) say(id + " has no spec");
    if (!others_.contains("log:" + id)) say(id + " has no log");
    const bool leased = state == "RUNNING" || state == "CANCELLING";
    if (leased != job.contains("worker")) say(id + " is " + state + " and its worker disagrees");
    const bool adapter_exists = others_.contains("adapter:" + job.at("adapter"));
    if (!job.at("adapter").empty() && adapter_exists != (state == "SUCCEEDED")) {
      say(id + " is " + state + " and its adapter record disagrees");
    }
    const std::string& uniq = job.at("uniq");
    if (!uniq.empty() && !terminal && !others_.contains("uniq:" + job.at("tenant") + ":" + uniq)) {
      say(id + " lost its unique name");
    }
    for (const std::string& file : words(job.at("files"))) {
      if (!terminal) expected_["fileuse:" + file].insert(id);
    }
  }

  static std::vector<std::string> words(const std::string& text) {
    std::vector<std::string> list;
    size_t at = 0;
    while (at < text.size()) {
      const size_t end = std::min(text.find(' ', at), text.size());
      if (end > at) list.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    return list;
  }

  // Nobody may be in a set without belonging there.
  void check_strangers() {
    for (const auto& [name, members] : sets_) {
      const std::string family = name.substr(0, name.find(':'));
      const bool of_jobs = family != "ring" && family != "workers" && family != "capped" &&
                           family != "tfiles" && family != "tadapters" && family != "desired";
      if (!of_jobs) continue;
      for (const auto& [member, score] : members) {
        if (!expected_[name].contains(member)) say(member + " does not belong in " + name);
      }
    }
    for (const std::string& name : others_) {
      for (const std::string family : {"spec:", "log:"}) {
        if (name.starts_with(family) && !jobs_.contains(name.substr(family.size()))) {
          say(name + " has no job");
        }
      }
    }
  }

  // I7: in the ring exactly if something waits, running < limit and the day's seconds are not
  // spent.
  void check_rings() {
    std::set<std::string> tenants, pools;
    for (const auto& [id, job] : jobs_) {
      tenants.insert(job.at("tenant"));
      pools.insert(job.at("pool"));
    }
    for (const std::string& tenant : tenants) {
      const Job limits = server_.call({"HGETALL", kPrefix + "tenant:" + tenant}).fields();
      const auto limit = [&](const char* name, double other) {
        return limits.contains(name) ? std::stod(limits.at(name)) : other;
      };
      const bool room =
          static_cast<double>(sets_["trun:" + tenant].size()) < limit("max_running", 2);
      const double day = std::floor(static_cast<double>(now_ms_) / 86400000);
      const bool spent = limit("gpu_max_day", 0) > 0 && limit("gpu_day", 0) == day &&
                         limit("gpu_used", 0) >= limit("gpu_max_day", 0);
      for (const std::string& pool : pools) {
        const bool waits = !sets_["rq:" + pool + ":" + tenant].empty();
        const bool present = sets_["ring:" + pool].contains(tenant);
        // A new day frees a tenant at the next sweep, so a spent day that is over may lag.
        const bool capped = sets_["capped"].contains(tenant);
        if (present != (waits && room && !spent) && !(capped && !present)) {
          say("tenant " + tenant + (present ? " is" : " is not") + " in ring:" + pool);
        }
      }
    }
  }

  // I2, I3, I5 over the whole event stream.
  void check_events() {
    struct Past {
      std::string state, epoch, worker;
      double last_epoch = 0;
      int succeeded = 0;
    };
    std::map<std::string, Past> past;
    for (const Reply& entry : server_.call({"XRANGE", kPrefix + "events", "-", "+"}).elements) {
      const auto e = entry.at(1).fields();
      Past& p = past[e.at("job")];
      const std::string& state = e.at("state");
      if (!kSteps.contains({p.state, state})) {
        say(e.at("job") + " went from '" + p.state + "' to " + state + " by " + e.at("why"));
      }
      if (state == "RUNNING") {
        const double epoch = std::stod(e.at("epoch"));
        if (epoch <= p.last_epoch) say(e.at("job") + " ran with an epoch that did not grow");
        p.last_epoch = epoch;
        p.epoch = e.at("epoch");
        p.worker = e.at("worker");
      }
      if (state == "SUCCEEDED" &&
          (++p.succeeded > 1 || e.at("epoch") != p.epoch || e.at("worker") != p.worker)) {
        say(e.at("job") + " was published twice or by somebody else");
      }
      p.state = state;
    }
    for (const auto& [id, job] : jobs_) {
      if (past[id].state != job.at("state")) {
        say(id + " is " + job.at("state") + ", its last event says " + past[id].state);
      }
    }
  }

  support::RedisServer& server_;
  const int64_t now_ms_;
  std::map<std::string, Job> jobs_;
  std::map<std::string, Members> sets_;
  std::map<std::string, std::set<std::string>> expected_;
  std::set<std::string> others_;
  std::vector<std::string> wrong_;
};

}  // namespace

std::vector<std::string> broken_invariants(support::RedisServer& server, int64_t now_ms) {
  return Oracle(server, now_ms).judge();
}

std::string dump_all(support::RedisServer& server) {
  const Reply rows =
      server.call({"EVAL",
                   "local keys, rows = redis.call('KEYS', '*'), {} "
                   "table.sort(keys) "
                   "for _, key in ipairs(keys) do "
                   "rows[#rows + 1] = key rows[#rows + 1] = redis.call('DUMP', key) end "
                   "return rows",
                   "0"});
  std::string all;
  for (const Reply& row : rows.elements) all += row.text + "\n";
  return all;
}

}  // namespace dex::store
