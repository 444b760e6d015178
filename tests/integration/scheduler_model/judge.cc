#include "tests/integration/scheduler_model/judge.h"

#include <algorithm>
#include <cmath>

namespace dex::model {

using support::is_terminal;
using support::number_of;
using support::StoreSnapshot;
using support::text_of;

namespace {

// Fields of a job that the reference knows in every state. Left out: rev and the clocks of changes
// (judged by their direction), texts for people, what the log needs.
const std::vector<std::string> kAlways = {
    "id",       "kind",       "tenant",     "pool",        "prio",      "files",    "adapter",
    "state",    "want",       "epoch",      "attempt",     "failures",  "crashes",  "preempts",
    "ooms",     "fulls",      "max_fail",   "max_crash",   "cost",      "gpus",     "uniq",
    "base",     "created_ms", "enter_ms",   "deadline_ms", "ckpt_uri",  "ckpt_sha", "ckpt_step",
    "progress", "fin_epoch",  "fin_out",    "fin_worker",  "fin_reply", "op_id",    "purging",
    "ckreq",    "ckreq_seq",  "result_uri", "result_sha",  "metadata",  "name",     "worker",
    "lease_ms", "charged",    "beat_seq",   "phase"};

std::vector<std::string> fields_of(const std::string& state) {
  std::vector<std::string> fields = kAlways;
  fields.insert(fields.end(), {"uses", "archived"});
  if (state == "RUNNING" || state == "CANCELLING") fields.emplace_back("started_ms");
  if (state == "DELAYED") fields.emplace_back("due_ms");
  if (state == "PAUSED") fields.emplace_back("pause_reason");
  if (is_terminal(state)) {
    fields.emplace_back("finished_ms");
    fields.emplace_back("why_code");
  }
  return fields;
}

class StepJudge {
 public:
  StepJudge(const Expected& expected, const StoreSnapshot& before, const StoreSnapshot& after,
            int64_t now_ms)
      : expected_(expected), before_(before), after_(after), now_ms_(now_ms) {}

  std::vector<std::string> judge() {
    jobs();
    events();
    for (const Expected::Charge& charge : expected_.charges) account(charge);
    turns();
    workers();
    clocks();
    records();
    adapters();
    logs();
    return std::move(wrong_);
  }

 private:
  void say(const std::string& text) { wrong_.push_back(text); }

  void jobs() {
    for (const auto& [id, job] : before_.jobs) {
      const bool there = after_.jobs.contains(id);
      if (id == expected_.gone && there) say(id + " is still there");
      if (id != expected_.gone && !there) say(id + " is gone");
    }
    for (const auto& [id, job] : after_.jobs) {
      const auto changed = expected_.jobs.find(id);
      const auto old = before_.jobs.find(id);
      if (changed != expected_.jobs.end()) {
        compare(id, changed->second, job);
      } else if (old == before_.jobs.end()) {
        say(id + " was made");
      } else if (old->second != job) {
        say(id + " was changed: " + first_difference(old->second, job));
      }
      if (old != before_.jobs.end()) directions(id, old->second, job);
    }
    for (const auto& [id, job] : expected_.jobs) {
      if (!after_.jobs.contains(id)) say(id + " was not made");
    }
  }

  static std::string first_difference(const Fields& a, const Fields& b) {
    for (const auto& [name, value] : a) {
      if (!b.contains(name) || b.at(name) != value) return name + " was " + value;
    }
    for (const auto& [name, value] : b) {
      if (!a.contains(name)) return name + " is " + value;
    }
    return "";
  }

  void compare(const std::string& id, const Fields& should, const Fields& is) {
    for (const std::string& name : fields_of(text_of(should, "state"))) {
      const bool equal = text_of(should, name) == text_of(is, name) &&
                         (name == "worker" || name == "lease_ms" || name == "charged"
                              ? should.contains(name) == is.contains(name)
                              : true);
      if (!equal) {
        say(id + " has " + name + " '" + text_of(is, name) + "', should be '" +
            text_of(should, name) + "'");
      }
    }
  }

  // What never goes back, whatever happens.
  void directions(const std::string& id, const Fields& old, const Fields& job) {
    for (const char* field : {"rev", "seq", "epoch", "attempt", "archived"}) {
      if (number_of(job, field) < number_of(old, field)) say(id + "'s " + field + " went back");
    }
    if (text_of(old, "state") != text_of(job, "state") &&
        number_of(job, "rev") <= number_of(old, "rev")) {
      say(id + " changed its state and kept its etag");
    }
  }

  void events() {
    std::vector<std::string> written;
    for (const support::StoreEvent& event : after_.events) {
      written.push_back(event.job + " " + event.state + " " + event.epoch + " " + event.worker +
                        " " + event.why);
    }
    if (written == expected_.events) return;
    std::string text = "the event stream got [";
    for (const std::string& event : written) text += event + "; ";
    text += "], not [";
    for (const std::string& event : expected_.events) text += event + "; ";
    say(text + "]");
  }

  // Only where one charge is all that moved the account: a sweep may end several attempts.
  void account(const Expected::Charge& charge) {
    if (expected_.charges.size() > 1) return;
    const Fields& old = before_.hash("tenant:" + charge.tenant);
    const Fields& now = after_.hash("tenant:" + charge.tenant);
    const std::string turn = "vt:" + charge.pool;
    const double weight = old.contains("weight") ? number_of(old, "weight") : 1;
    const double should = number_of(old, turn) + charge.amount / weight;
    const double is = number_of(now, turn);
    if (charge.claim ? std::abs(is - should) > 1e-4 : is < should - 1e-4) {
      say(charge.tenant + " has the virtual time " + std::to_string(is) + ", should be " +
          std::to_string(should));
    }
    const double today = std::floor(static_cast<double>(now_ms_) / 86400000);
    const double used = number_of(old, "gpu_day") == today ? number_of(old, "gpu_used") : 0;
    const double day = std::max(0.0, used + charge.amount);
    if (std::abs(number_of(now, "gpu_used") - day) > 1e-4) {
      say(charge.tenant + " has used " + text_of(now, "gpu_used") + " s today, should be " +
          std::to_string(day));
    }
  }

  void turns() {
    for (const auto& [whose, should] : expected_.turns) {
      const auto& [tenant, pool] = whose;
      const double is = number_of(after_.hash("tenant:" + tenant), "vt:" + pool);
      if (std::abs(is - should) <= 1e-4) continue;
      say(tenant + " was passed over and has the virtual time " + std::to_string(is) +
          ", should be " + std::to_string(should));
    }
  }

  void workers() {
    for (const auto& [name, fields] : after_.hashes) {
      if (!name.starts_with("worker:")) continue;
      const auto changed = expected_.workers.find(name.substr(7));
      const std::string should = changed != expected_.workers.end()
                                     ? changed->second
                                     : text_of(before_.hash(name), "state");
      if (text_of(fields, "state") != should) {
        say(name + " is " + text_of(fields, "state") + ", should be " + should);
      }
    }
  }

  void clocks() {
    for (const auto& [name, should] : expected_.cfg) {
      if (std::abs(number_of(after_.hash("cfg"), name) - should) > 1e-4) {
        say("cfg." + name + " is " + text_of(after_.hash("cfg"), name) + ", should be " +
            std::to_string(should));
      }
    }
  }

  void records() {
    const auto compare_with = [&](const StoreSnapshot& from, const StoreSnapshot& to) {
      for (const auto& [name, fields] : from.hashes) {
        const bool kept = name.starts_with("file:") || name.starts_with("adapter:");
        if (kept && !expected_.hashes.contains(name) && to.hash(name) != fields) {
          say(name + " has changed");
        }
      }
    };
    compare_with(before_, after_);
    compare_with(after_, before_);
    for (const std::string& name : expected_.hashes) {
      if (before_.hash(name) == after_.hash(name)) say(name + " has not changed");
    }
  }

  void adapters() {
    for (const auto& [id, loaded] : expected_.desired) {
      const Fields& record = after_.hash("adapter:" + id);
      if ((text_of(record, "desired") == "loaded") != loaded)
        say(id + (loaded ? " is to be held and is not" : " is to go and is still held"));
      if (number_of(record, "rev") <= number_of(before_.hash("adapter:" + id), "rev"))
        say(id + " was changed and kept its revision");
    }
    const bool moved =
        text_of(before_.hash("cfg"), "desired_rev") != text_of(after_.hash("cfg"), "desired_rev");
    if (moved && !expected_.cfg.contains("desired_rev"))
      say("workers are told of a change of the adapters, and there is none");
  }

  // A log grows by what was said, and is cut by an archive alone.
  void logs() {
    for (const auto& [id, job] : after_.jobs) {
      const auto log = after_.streams.find("log:" + id);
      if (log == after_.streams.end()) continue;  // broken_sets() says so
      const auto old = before_.jobs.find(id);
      const auto old_log = before_.streams.find("log:" + id);
      const bool known = old != before_.jobs.end() && old_log != before_.streams.end();
      const double grown = number_of(job, "seq") - (known ? number_of(old->second, "seq") : 0);
      const auto cut = expected_.logs.find(id);
      const double should = cut != expected_.logs.end()
                                ? cut->second
                                : grown + (known ? static_cast<double>(old_log->second.length) : 0);
      if (static_cast<double>(log->second.length) == should) continue;
      say(id + " has " + std::to_string(log->second.length) + " log entries, should have " +
          std::to_string(static_cast<int64_t>(should)));
    }
  }

  const Expected& expected_;
  const StoreSnapshot& before_;
  const StoreSnapshot& after_;
  const int64_t now_ms_;
  std::vector<std::string> wrong_;
};

}  // namespace

std::vector<std::string> differences(const Expected& expected, const StoreSnapshot& before,
                                     const StoreSnapshot& after, int64_t now_ms) {
  return StepJudge(expected, before, after, now_ms).judge();
}

std::vector<std::string> wrong_requests(const Requests& requests, const StoreSnapshot& store) {
  std::vector<std::string> wrong;
  size_t kept = 0;
  for (const auto& [name, fields] : store.hashes) {
    if (!name.starts_with("idem:")) continue;
    ++kept;
    const auto found = requests.find(name.substr(5));
    if (found == requests.end()) {
      wrong.push_back(name + " is kept, but nothing was done");
    } else if (found->second.digest != text_of(fields, "sha") ||
               found->second.ids != text_of(fields, "ids")) {
      wrong.push_back(name + " does not say what was done");
    }
  }
  if (kept < requests.size()) wrong.push_back("a request_id was forgotten");
  return wrong;
}

}  // namespace dex::model
