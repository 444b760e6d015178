// What happens to attempts, and what time alone changes.
#include <algorithm>
#include <cmath>
#include <set>

#include "tests/integration/scheduler_model/answers.h"
#include "tests/integration/scheduler_model/reference.h"

namespace dex::model {

using support::is_terminal;
using support::number_of;
using support::text_of;

bool Reference::owned(const Fields* job, const std::string& worker, int64_t epoch) const {
  if (job == nullptr) return false;
  const std::string& state = text_of(*job, "state");
  return (state == "RUNNING" || state == "CANCELLING") && text_of(*job, "worker") == worker &&
         text_of(*job, "epoch") == std::to_string(epoch);
}

bool Reference::served(const std::string& tenant, const std::string& pool) const {
  const Fields& account = before_.hash("tenant:" + tenant);
  const double most = limit(tenant, "gpu_max_day", 0);
  const double today = std::floor(static_cast<double>(now_ms_) / 86400000);
  const bool spent =
      most > 0 && number_of(account, "gpu_day") == today && number_of(account, "gpu_used") >= most;
  return !before_.zset("rq:" + pool + ":" + tenant).empty() && !spent &&
         static_cast<double>(before_.zset("trun:" + tenant).size()) <
             limit(tenant, "max_running", 2);
}

// The job that a claim gets from this pool; empty: none.
std::string Reference::head(const std::string& pool, const Fields& worker) const {
  const std::vector<std::string> models = support::words_of(text_of(worker, "models"));
  for (const std::string& tenant : before_.ordered("ring:" + pool)) {
    if (!served(tenant, pool)) continue;
    for (const std::string& id : before_.ordered("rq:" + pool + ":" + tenant)) {
      const std::string& base = text_of(before_.jobs.at(id), "base");
      const bool fits = models.empty() || base.empty() ||
                        std::find(models.begin(), models.end(), base) != models.end();
      if (fits) return id;
    }
  }
  return "";
}

// Whether a worker that is up in the pool has the model of any of the tenant's waiting jobs.
bool Reference::anybody_takes(const std::string& tenant, const std::string& pool) const {
  std::set<std::string> present;
  for (const auto& [id, beat_ms] : before_.zset("workers")) {
    const Fields& worker = before_.hash("worker:" + id);
    const std::vector<std::string> pools = support::words_of(text_of(worker, "pools")),
                                   models = support::words_of(text_of(worker, "models"));
    if (text_of(worker, "state") != "up") continue;
    if (std::find(pools.begin(), pools.end(), pool) == pools.end()) continue;
    if (models.empty()) return true;
    present.insert(models.begin(), models.end());
  }
  for (const auto& [id, score] : before_.zset("rq:" + pool + ":" + tenant)) {
    const std::string& base = text_of(before_.jobs.at(id), "base");
    if (base.empty() || present.contains(base)) return true;
  }
  return false;
}

// Those before the tenant that is served, whose turn is `turn`: who no worker present can serve
// keeps up with it, the others keep their place.
void Reference::pass_over(const std::string& pool, const std::string& served_tenant, double turn) {
  for (const std::string& tenant : before_.ordered("ring:" + pool)) {
    if (tenant == served_tenant) return;
    if (!served(tenant, pool)) continue;
    const double own = number_of(before_.hash("tenant:" + tenant), "vt:" + pool);
    expected_.turns[{tenant, pool}] = anybody_takes(tenant, pool) ? own : std::max(own, turn);
  }
}

void Reference::start(Fields& job, const Jobs::ClaimRequest& request) {
  job["epoch"] = whole(std::max(number_of(job, "epoch") + 1, static_cast<double>(now_ms_)));
  job["attempt"] = whole(number_of(job, "attempt") + 1);
  job["worker"] = request.worker;
  job["lease_ms"] = whole(now_ms_ + times_.lease_ms);
  job["started_ms"] = whole(now_ms_);
  job["charged"] = text_of(job, "cost");
  job["beat_seq"] = "0";
  job["phase"] = "";
  job["state"] = "RUNNING";
}

Expected Reference::claim(const Jobs::ClaimRequest& request) {
  const Fields& worker = before_.hash("worker:" + request.worker);
  const std::string& state = text_of(worker, "state");
  const std::string slot = std::to_string(request.slot);
  const auto line = [&](const std::string& id, const Fields& job) {
    const auto spec = before_.strings.find("spec:" + id);
    return claim_line(job, spec == before_.strings.end() ? "" : spec->second);
  };
  if (state.empty() || state == "gone") return answer("UNKNOWN", "UNKNOWN");
  if (text_of(worker, "cid:" + slot) == request.claim_id) {
    const std::string& id = text_of(worker, "cjob:" + slot);
    const Fields* job = find(id);
    const auto epoch = static_cast<int64_t>(number_of(worker, "cep:" + slot));
    if (!owned(job, request.worker, epoch)) return answer("STALE", "STALE");
    return answer("JOB again", line(id, *job) + " known");
  }
  if (state == "draining") return answer("DRAIN", "DRAIN");
  for (const std::string& pool : request.pools) {
    const std::string id = head(pool, worker);
    if (id.empty()) continue;
    Fields& job = change(id);
    start(job, request);
    event(id, text_of(job, "epoch"), request.worker, "claim");
    const std::string tenant = text_of(job, "tenant");
    const double turn = number_of(before_.hash("tenant:" + tenant), "vt:" + pool);
    expected_.cfg["vt:" + pool] = std::max(turn, number_of(before_.hash("cfg"), "vt:" + pool));
    expected_.charges.push_back({tenant, pool, number_of(job, "cost"), true});
    pass_over(pool, tenant, turn);
    return answer("JOB", line(id, job) + " new");
  }
  return answer("NONE", "NONE");
}

// A checkpoint that the worker offers. A request that it has heard of is answered by the first new
// one.
void Reference::point_to(Fields& job, const store::Checkpoint& checkpoint) {
  if (checkpoint.uri.empty()) return;
  if (job.contains("ckreq") && job.contains("ckreq_seq") &&
      checkpoint.uri != text_of(job, "ckpt_uri")) {
    job.erase("ckreq");
    job.erase("ckreq_seq");
  }
  job["ckpt_uri"] = checkpoint.uri;
  job["ckpt_sha"] = checkpoint.manifest_sha256;
  job["ckpt_step"] = std::to_string(checkpoint.step);
}

Expected Reference::beat(const Jobs::Beat& beat) {
  if (beat.events.size() > 128 || beat.progress.size() > 512) {
    return refuse("BADARG", "INVALID_FIELD");
  }
  if (!owned(find(beat.id), beat.worker, beat.epoch)) return answer("LOST", "LOST");
  Fields& job = change(beat.id);
  // A beat never moves an expiry back (I9).
  const double expiry =
      std::max(number_of(job, "lease_ms"), static_cast<double>(now_ms_ + times_.lease_ms));
  job["lease_ms"] = whole(expiry);
  const bool fresh = static_cast<double>(beat.sequence) > number_of(job, "beat_seq");
  if (fresh) {
    job["beat_seq"] = std::to_string(beat.sequence);
    job["phase"] = beat.phase;
    if (!beat.progress.empty()) job["progress"] = beat.progress;
    point_to(job, beat.checkpoint);
    if (job.contains("ckreq") && !job.contains("ckreq_seq")) {
      job["ckreq_seq"] = std::to_string(beat.sequence);
    }
  }
  const std::string word = text_of(job, "state") == "CANCELLING" ? "CANCEL"
                           : text_of(job, "want") == "pause"     ? "PAUSE"
                                                                 : "OK";
  const std::string asked = job.contains("ckreq_seq") ? text_of(job, "ckreq") : "";
  return answer(word, word + " " + whole(expiry) + " " + (asked.empty() ? "-" : asked) +
                          (fresh ? " new" : " known"));
}

void Reference::end_attempt(Fields& job) {
  const double used = number_of(job, "gpus") *
                      std::max(0.0, static_cast<double>(now_ms_) - number_of(job, "started_ms")) /
                      1000;
  expected_.charges.push_back(
      {text_of(job, "tenant"), text_of(job, "pool"), used - number_of(job, "charged"), false});
  for (const char* field : {"worker", "lease_ms", "charged", "phase", "beat_seq", "ckreq_seq"}) {
    job.erase(field);
  }
}

// PAUSED if a pause waits, else after the delay, else at once. Nobody is put at the end of the
// queue.
void Reference::requeue(Fields& job, double delay_ms) {
  if (text_of(job, "want") == "pause") {
    job["state"] = "PAUSED";
    job["want"] = "run";
    job["pause_reason"] = "USER";
  } else if (delay_ms > 0) {
    job["state"] = "DELAYED";
    job["due_ms"] = whole(static_cast<double>(now_ms_) + delay_ms);
  } else {
    job["state"] = "READY";
  }
}

void Reference::terminal(Fields& job, const std::string& state) {
  job["state"] = state;
  job["finished_ms"] = whole(now_ms_);
  job.erase("ckreq");
}

void Reference::failed(Fields& job, const std::string& code) {
  job["why_code"] = code;
  terminal(job, "FAILED");
}

// Deaths of process or worker: the first is tried again at once, then 30 s, 60 s … at most 10 min.
void Reference::crashed(Fields& job) {
  const double crashes = number_of(job, "crashes") + 1;
  job["crashes"] = whole(crashes);
  if (crashes > number_of(job, "max_crash")) return failed(job, "poison_job");
  const double wait = static_cast<double>(times_.crash_backoff_ms) * std::pow(2, crashes - 2);
  requeue(job, crashes <= 1 ? 0 : std::min(wait, 600000.0));
}

// What the outcome of an attempt that nobody cancelled leads to (jobs.md §6).
void Reference::end_by(Fields& job, const Jobs::Finish& finish) {
  const auto count = [&](const char* counter) {
    const double n = number_of(job, counter) + 1;
    job[counter] = whole(n);
    return n;
  };
  if (finish.outcome == "fail_retry") {
    const double failures = count("failures");
    if (failures > number_of(job, "max_fail")) return failed(job, finish.why_code);
    const double wait = std::min(static_cast<double>(times_.retry_backoff_ms) *
                                     finish.backoff_factor * std::pow(2, failures - 1),
                                 1800000.0);
    job["enter_ms"] = whole(static_cast<double>(now_ms_) + wait);
    requeue(job, wait);
  } else if (finish.outcome == "fail_final") {
    failed(job, finish.why_code);
  } else if (finish.outcome == "crash") {
    crashed(job);
  } else if (finish.outcome == "oom") {
    count("ooms") > 1 ? failed(job, "out_of_memory") : requeue(job, 0);
  } else if (finish.outcome == "disk_full") {
    if (count("fulls") > 3) {
      job["state"] = "PAUSED";
      job["want"] = "run";
      job["pause_reason"] = "DISK_FULL";
    } else {
      requeue(job, 0);
    }
  } else if (finish.outcome == "release") {
    count("preempts") > 100 ? failed(job, "internal") : requeue(job, 0);
  } else if (text_of(job, "want") == "run") {  // paused, and the user has changed his mind
    requeue(job, 0);
  } else {
    job["pause_reason"] = text_of(job, "want") == "hold" ? "AWAITING_START" : "USER";
    job["want"] = "run";
    job["state"] = "PAUSED";
  }
}

Expected Reference::finish(const Jobs::Finish& finish) {
  static const std::set<std::string> outcomes = {"success", "fail_retry", "fail_final",
                                                 "crash",   "oom",        "disk_full",
                                                 "release", "paused",     "cancelled"};
  const Fields* found = find(finish.id);
  if (found == nullptr) return answer("LOST", "LOST");
  const std::string epoch = std::to_string(finish.epoch);
  if (text_of(*found, "fin_epoch") == epoch && text_of(*found, "fin_out") == finish.outcome &&
      text_of(*found, "fin_worker") == finish.worker) {
    return answer("DUP", "DUP " + text_of(*found, "fin_reply"));
  }
  if (!owned(found, finish.worker, finish.epoch)) return answer("LOST", "LOST");
  const bool cancelling = text_of(*found, "state") == "CANCELLING";
  if (finish.outcome == "cancelled" && !cancelling) return refuse("BADSTATE", "INVALID_FIELD");
  if (!outcomes.contains(finish.outcome) ||
      (finish.outcome == "success" && finish.result_uri.empty()) || finish.events.size() > 128) {
    return refuse("BADARG", "INVALID_FIELD");
  }
  Fields& job = change(finish.id);
  point_to(job, finish.checkpoint);
  end_attempt(job);
  if (!finish.progress.empty()) job["progress"] = finish.progress;
  if (finish.outcome == "success") {  // beats a late cancel or pause
    job["result_uri"] = finish.result_uri;
    job["result_sha"] = finish.result_sha256;
    job["why_code"] = "";
    if (!text_of(job, "adapter").empty()) {
      expected_.hashes.insert("adapter:" + text_of(job, "adapter"));
    }
    terminal(job, "SUCCEEDED");
  } else if (cancelling) {  // why it was cancelled stays
    terminal(job, "CANCELLED");
  } else {
    end_by(job, finish);
  }
  job["fin_epoch"] = epoch;
  job["fin_out"] = finish.outcome;
  job["fin_worker"] = finish.worker;
  job["fin_reply"] = text_of(job, "state");
  event(finish.id, epoch, finish.worker, finish.outcome);
  return answer("OK " + finish.outcome, "OK " + text_of(job, "state"));
}

// Jobs in one of the states whose field is at most `last`, by that field, then by id.
std::vector<std::string> Reference::due(const std::vector<std::string>& states,
                                        const std::string& field, double last) const {
  std::vector<std::pair<double, std::string>> rows;
  for (const auto& [id, job] : before_.jobs) {
    const Fields& by_now = *find(id);
    const bool fits =
        std::find(states.begin(), states.end(), text_of(by_now, "state")) != states.end();
    const double at = number_of(by_now, field);
    if (fits && at > 0 && at <= last) rows.emplace_back(at, id);
  }
  std::sort(rows.begin(), rows.end());
  std::vector<std::string> ids;
  for (const auto& [at, id] : rows) ids.push_back(id);
  return ids;
}

// T9, T10: the lease has run out.
void Reference::lose(const std::string& id) {
  Fields& job = change(id);
  const std::string worker = text_of(job, "worker");
  const bool cancelling = text_of(job, "state") == "CANCELLING";
  end_attempt(job);
  if (cancelling) {
    terminal(job, "CANCELLED");
  } else {
    crashed(job);
  }
  event(id, text_of(job, "epoch"), worker, "lease_expired");
}

Expected Reference::sweep() {
  const Fields& cfg = before_.hash("cfg");
  const auto now = static_cast<double>(now_ms_);
  const auto settle = static_cast<double>(times_.settle_ms);
  const auto longest = now + static_cast<double>(times_.lease_ms);
  double settle_until = number_of(cfg, "settle_until");
  // Nobody swept for a while, so nobody could renew a lease: everyone gets one more.
  if (now - number_of(cfg, "swept_ms") > static_cast<double>(times_.gap_ms)) {
    settle_until = std::max(settle_until, now + settle);
  }
  settle_until = std::min(settle_until, now + settle);  // after a step back of the clock
  expected_.cfg = {{"swept_ms", now}, {"settle_until", settle_until}};
  const bool settling = now < settle_until;

  size_t pulled = 0, leases = 0, lost = 0;
  for (const auto& [id, job] : before_.jobs) {
    if (number_of(job, "lease_ms") <= longest) continue;
    change(id)["lease_ms"] = whole(longest);
    ++pulled;
  }
  const auto overdue = due({"READY", "DELAYED", "PAUSED", "RUNNING"}, "deadline_ms", now);
  for (const std::string& id : overdue) stop(id, "deadline_exceeded");
  if (!settling) {
    const auto expired = due({"RUNNING", "CANCELLING"}, "lease_ms", now - 1);
    for (const std::string& id : expired) lose(id);
    leases = expired.size();
  }
  const auto ready = due({"DELAYED"}, "due_ms", now);
  for (const std::string& id : ready) {
    change(id)["state"] = "READY";
    event(id, "", "", "due");
  }
  size_t uncapped = 0;
  for (const auto& [tenant, until] : before_.zset("capped")) uncapped += until <= now ? 1 : 0;
  for (const auto& [worker, seen] : before_.zset("workers")) {
    if (settling || seen >= now - static_cast<double>(times_.worker_timeout_ms)) continue;
    expected_.workers[worker] = "gone";
    ++lost;
  }
  // The word counts each rule that had something to do.
  std::string word = settling ? "settling" : "OK";
  if (pulled > 0) word += " pulled";
  if (!overdue.empty()) word += " deadline";
  if (leases > 0) word += " lease";
  if (!ready.empty()) word += " due";
  if (uncapped > 0) word += " uncapped";
  if (lost > 0) word += " lost";
  return answer(
      word, sweep_line(pulled, overdue.size(), leases, ready.size(), uncapped, lost, settling, 0));
}

}  // namespace dex::model
