// What clients ask for; attempts and time are in reference_attempts.cc.
#include "tests/integration/scheduler_model/reference.h"

#include <algorithm>
#include <cmath>

#include "tests/integration/scheduler_model/answers.h"

namespace dex::model {

using store::RequestKey;
using support::is_terminal;
using support::number_of;
using support::text_of;

Expected Reference::answer(const std::string& word, const std::string& reply) {
  expected_.word = word;
  expected_.reply = reply;
  return std::move(expected_);
}

bool Reference::known(const std::string& tenant, const RequestKey& key, bool with_ids) {
  const auto found = requests_.find(tenant + ":" + key.id);
  if (key.id.empty() || found == requests_.end()) return false;
  const bool same = found->second.digest == key.digest;
  expected_.word = same ? "DUP" : "CONFLICT";
  expected_.reply = !same ? "IDEMPOTENCY_CONFLICT" : with_ids ? "DUP " + found->second.ids : "DUP";
  return true;
}

void Reference::remember(const std::string& tenant, const RequestKey& key, const std::string& ids) {
  if (!key.id.empty()) expected_.requests[tenant + ":" + key.id] = {key.digest, ids};
}

const Fields* Reference::find(const std::string& id) const {
  if (const auto changed = expected_.jobs.find(id); changed != expected_.jobs.end()) {
    return &changed->second;
  }
  const auto found = before_.jobs.find(id);
  return found == before_.jobs.end() ? nullptr : &found->second;
}

const Fields* Reference::find(const std::string& tenant, const std::string& id) const {
  const Fields* job = find(id);
  return job != nullptr && text_of(*job, "tenant") == tenant ? job : nullptr;
}

Fields& Reference::change(const std::string& id) {
  if (!expected_.jobs.contains(id)) expected_.jobs[id] = before_.jobs.at(id);
  return expected_.jobs[id];
}

void Reference::event(const std::string& id, const std::string& epoch, const std::string& worker,
                      const std::string& why) {
  const Fields* job = find(id);
  expected_.events.push_back(id + " " + text_of(*job, "state") + " " + epoch + " " + worker + " " +
                             why);
}

double Reference::limit(const std::string& tenant, const char* name, double other) const {
  const Fields& limits = before_.hash("tenant:" + tenant);
  return limits.contains(name) ? number_of(limits, name) : other;
}

std::string Reference::refused_file(const std::string& tenant, const std::string& files) const {
  for (const std::string& id : support::words_of(files)) {
    const Fields& file = before_.hash("file:" + id);
    if (text_of(file, "tenant") != tenant) return "RESOURCE_NOT_FOUND";
    const std::string& state = text_of(file, "state");
    if (state == "INVALID" || state == "LOST") return "FILE_INVALID";
    if (state != "READY") return "FILE_NOT_READY";
  }
  return "";
}

bool Reference::lacks_adapter(const std::string& tenant, const std::string& uses) const {
  const std::vector<std::string> ids = support::words_of(uses);
  return std::any_of(ids.begin(), ids.end(), [&](const std::string& id) {
    return text_of(before_.hash("adapter:" + id), "tenant") != tenant;
  });
}

void Reference::count_up(const std::string& revision) {
  expected_.cfg[revision] = number_of(before_.hash("cfg"), revision) + 1;
}

void Reference::make(const std::string& tenant, const store::NewJob& job) {
  Fields made = {{"id", job.id},
                 {"kind", job.kind},
                 {"tenant", tenant},
                 {"pool", job.pool},
                 {"prio", std::to_string(job.priority)},
                 {"files", joined(job.files)},
                 {"adapter", job.adapter},
                 {"want", job.hold ? "hold" : "run"},
                 {"epoch", "0"},
                 {"max_fail", std::to_string(job.max_fail)},
                 {"max_crash", std::to_string(job.max_crash)},
                 {"cost", std::to_string(job.cost_gpu_seconds)},
                 {"gpus", std::to_string(job.gpus)},
                 {"uniq", job.unique_name},
                 {"base", job.base_model},
                 {"created_ms", whole(now_ms_)},
                 {"enter_ms", whole(now_ms_ + job.delay_ms)},
                 {"deadline_ms", job.deadline_ms > 0 ? whole(now_ms_ + job.deadline_ms) : "0"}};
  for (const char* counter : {"attempt", "failures", "crashes", "preempts", "ooms", "fulls"}) {
    made[counter] = "0";
  }
  if (!job.adapters.empty()) made["uses"] = joined(job.adapters);
  requeue(made, static_cast<double>(job.delay_ms));
  expected_.jobs[job.id] = std::move(made);
  event(job.id, "", "", "submit");
}

Expected Reference::submit(const std::string& tenant, const Jobs::Submission& submission) {
  if (known(tenant, submission.request, true)) return std::move(expected_);
  const RequestKey automatic = {submission.auto_hash.empty() ? "" : "auto:" + submission.auto_hash,
                                submission.request.digest};
  if (submission.marked_as_repeat && known(tenant, automatic, true)) return std::move(expected_);
  std::map<std::string, std::string> names;
  std::string ids;
  for (const store::NewJob& job : submission.jobs) {
    if (before_.jobs.contains(job.id)) return refuse("IDTAKEN", "ID_TAKEN");
    if (!job.unique_name.empty()) {
      const auto holder = before_.strings.find("uniq:" + tenant + ":" + job.unique_name);
      if (holder != before_.strings.end()) names[job.unique_name] = holder->second;
      if (names.contains(job.unique_name)) {
        return refuse("NOTUNIQUE", "NAME_TAKEN " + names[job.unique_name]);
      }
      names[job.unique_name] = job.id;
    }
    const std::string refused = refused_file(tenant, joined(job.files));
    if (!refused.empty()) return refuse("NOFILE", refused);
    if (lacks_adapter(tenant, joined(job.adapters))) {
      return refuse("NOADAPTER", "RESOURCE_NOT_FOUND");
    }
    ids += (ids.empty() ? "" : " ") + job.id;
  }
  const size_t waiting = before_.zset("twait:" + tenant).size();
  if (static_cast<double>(waiting + submission.jobs.size()) > limit(tenant, "max_queued", 20)) {
    return refuse("QUOTA", "QUOTA_EXCEEDED");
  }
  for (const store::NewJob& job : submission.jobs) make(tenant, job);
  remember(tenant, submission.request, ids);
  remember(tenant, automatic, ids);
  return answer("OK", "OK " + ids);
}

void Reference::stop(const std::string& id, const std::string& code) {
  Fields& job = change(id);
  job["why_code"] = code;
  if (text_of(job, "state") == "RUNNING") {
    job["state"] = "CANCELLING";
    event(id, text_of(job, "epoch"), "", code);
  } else {
    terminal(job, "CANCELLED");
    event(id, "", "", code);
  }
}

Expected Reference::cancel(const std::string& tenant, const std::string& id,
                           const RequestKey& key) {
  if (known(tenant, key, false)) return std::move(expected_);
  const Fields* job = find(tenant, id);
  if (job == nullptr) return refuse("NOTFOUND", "RESOURCE_NOT_FOUND");
  const std::string state = text_of(*job, "state");
  // The second cancel of a job finds what the first one asked for.
  if (state == "CANCELLED") return answer("TERMINAL", "OK CANCELLED");
  if (is_terminal(state)) return refuse("TERMINAL", "JOB_STATE_CONFLICT");
  remember(tenant, key, id);
  if (state != "CANCELLING") stop(id, "cancelled");
  return answer("OK", "OK " + text_of(*find(id), "state"));
}

Expected Reference::pause(const std::string& tenant, const std::string& id, const RequestKey& key) {
  if (known(tenant, key, false)) return std::move(expected_);
  const Fields* job = find(tenant, id);
  if (job == nullptr) return refuse("NOTFOUND", "RESOURCE_NOT_FOUND");
  const std::string state = text_of(*job, "state");
  if (is_terminal(state)) return refuse("TERMINAL", "JOB_STATE_CONFLICT");
  if (state == "CANCELLING") return refuse("BADSTATE", "JOB_STATE_CONFLICT");
  remember(tenant, key, id);
  if (state == "RUNNING" && text_of(*job, "want") != "pause") {
    change(id)["want"] = "pause";
  } else if (state != "RUNNING" && state != "PAUSED") {
    Fields& paused = change(id);
    paused["want"] = "run";
    paused["pause_reason"] = "USER";
    paused["state"] = "PAUSED";
    event(id, "", "", "pause");
  }
  return answer("OK", "OK " + text_of(*find(id), "state"));
}

Expected Reference::resume(const std::string& tenant, const std::string& id,
                           const RequestKey& key) {
  if (known(tenant, key, false)) return std::move(expected_);
  const Fields* job = find(tenant, id);
  if (job == nullptr) return refuse("NOTFOUND", "RESOURCE_NOT_FOUND");
  const std::string state = text_of(*job, "state");
  if (is_terminal(state)) return refuse("TERMINAL", "JOB_STATE_CONFLICT");
  if (state == "CANCELLING") return refuse("BADSTATE", "JOB_STATE_CONFLICT");
  remember(tenant, key, id);
  if (state == "PAUSED") {
    Fields& resumed = change(id);
    resumed["want"] = "run";
    resumed["fulls"] = "0";
    resumed["enter_ms"] = whole(now_ms_);
    resumed["state"] = "READY";
    event(id, "", "", "resume");
  } else if (text_of(*job, "want") != "run") {
    change(id)["want"] = "run";
  }
  return answer("OK", "OK " + text_of(*find(id), "state"));
}

Expected Reference::redrive(const std::string& tenant, const std::string& id,
                            const RequestKey& operation, int64_t deadline_ms) {
  if (known(tenant, operation, false)) return std::move(expected_);
  const Fields* job = find(tenant, id);
  if (job == nullptr) return refuse("NOTFOUND", "RESOURCE_NOT_FOUND");
  if (text_of(*job, "op_id") == operation.id) return answer("DUP", "DUP");
  if (text_of(*job, "state") != "FAILED") return refuse("BADSTATE", "JOB_STATE_CONFLICT");
  if (text_of(*job, "purging") == "1") return refuse("PURGING", "JOB_STATE_CONFLICT");
  const std::string refused = refused_file(tenant, text_of(*job, "files"));
  if (!refused.empty()) return refuse("NOFILE", refused);
  if (lacks_adapter(tenant, text_of(*job, "uses"))) {
    return refuse("NOADAPTER", "RESOURCE_NOT_FOUND");
  }
  const std::string& name = text_of(*job, "uniq");
  const auto holder = before_.strings.find("uniq:" + tenant + ":" + name);
  if (!name.empty() && holder != before_.strings.end()) {
    return refuse("NOTUNIQUE", "NAME_TAKEN " + holder->second);
  }
  const size_t waiting = before_.zset("twait:" + tenant).size();
  if (static_cast<double>(waiting + 1) > limit(tenant, "max_queued", 20)) {
    return refuse("QUOTA", "QUOTA_EXCEEDED");
  }
  remember(tenant, operation, id);
  Fields& again = change(id);
  for (const char* counter : {"failures", "crashes", "preempts", "ooms", "fulls"}) {
    again[counter] = "0";
  }
  again["want"] = "run";
  again["op_id"] = operation.id;
  again["enter_ms"] = whole(now_ms_);
  again["deadline_ms"] = deadline_ms > 0 ? whole(now_ms_ + deadline_ms) : "0";
  again["state"] = "READY";
  event(id, "", "", "redrive");
  return answer("OK", "OK READY");
}

Expected Reference::update(const std::string& tenant, const std::string& id,
                           const Jobs::Update& update, const RequestKey& key) {
  if (known(tenant, key, false)) return std::move(expected_);
  const Fields* job = find(tenant, id);
  if (job == nullptr) return refuse("NOTFOUND", "RESOURCE_NOT_FOUND");
  if (text_of(*job, "purging") == "1") return refuse("PURGING", "JOB_STATE_CONFLICT");
  if (!update.etag.empty() && update.etag != text_of(*job, "rev")) {
    return refuse("STALE", "ETAG_MISMATCH");
  }
  const std::string state = text_of(*job, "state");
  if (update.priority && is_terminal(state)) return refuse("TERMINAL", "JOB_STATE_CONFLICT");
  remember(tenant, key, id);
  const std::string before = text_of(*job, "prio");
  Fields& changed = change(id);
  if (update.metadata) changed["metadata"] = *update.metadata;
  if (update.name) changed["name"] = *update.name;
  if (update.priority) changed["prio"] = std::to_string(*update.priority);
  if (state == "READY" && text_of(changed, "prio") != before) event(id, "", "", "reprio");
  return answer("OK", "OK " + state);
}

Expected Reference::purge_mark(const std::string& tenant, const std::string& id,
                               int64_t retention_ms, const RequestKey& key) {
  const bool janitor = tenant.empty();
  if (!janitor && known(tenant, key, false)) return std::move(expected_);
  const Fields* job = janitor ? find(id) : find(tenant, id);
  if (job == nullptr) {
    return janitor ? answer("GONE", "GONE") : refuse("NOTFOUND", "RESOURCE_NOT_FOUND");
  }
  if (janitor && retention_ms < 86400000) return refuse("BADARG", "INVALID_FIELD");
  if (text_of(*job, "purging") == "1") return answer("OK", "OK");
  if (!is_terminal(text_of(*job, "state"))) return refuse("BADSTATE", "JOB_STATE_CONFLICT");
  if (static_cast<double>(now_ms_) - number_of(*job, "finished_ms") <
      static_cast<double>(retention_ms)) {
    return refuse("YOUNG", "JOB_STATE_CONFLICT");
  }
  change(id)["purging"] = "1";
  return answer("OK", "OK");
}

Expected Reference::purge_commit(const std::string& tenant, const std::string& id,
                                 const RequestKey& key) {
  const bool janitor = tenant.empty();
  if (!janitor && known(tenant, key, false)) return std::move(expected_);
  const Fields* job = janitor ? find(id) : find(tenant, id);
  if (job == nullptr) {
    return janitor ? answer("GONE", "GONE") : refuse("NOTFOUND", "RESOURCE_NOT_FOUND");
  }
  if (text_of(*job, "purging") != "1") return refuse("NOTMARKED", "JOB_STATE_CONFLICT");
  if (!janitor) remember(tenant, key, id);
  expected_.gone = id;
  expected_.events.push_back(id + "    purge");
  return answer("OK commit", "OK");
}

Expected Reference::ask_checkpoint(const std::string& tenant, const std::string& id,
                                   const std::string& checkpoint, const RequestKey& key) {
  if (known(tenant, key, true)) return std::move(expected_);
  const Fields* job = find(tenant, id);
  if (job == nullptr) return refuse("NOTFOUND", "RESOURCE_NOT_FOUND");
  const std::string state = text_of(*job, "state");
  if (is_terminal(state)) return refuse("TERMINAL", "JOB_STATE_CONFLICT");
  if (state != "RUNNING") return refuse("BADSTATE", "JOB_STATE_CONFLICT");
  std::string asked = checkpoint;
  if (!before_.hash("ckpts:" + id).contains(checkpoint)) {
    if (!text_of(*job, "ckreq").empty()) {
      asked = text_of(*job, "ckreq");
    } else {
      change(id)["ckreq"] = checkpoint;
    }
  }
  remember(tenant, key, asked);
  return answer("OK", "OK " + asked);
}

Expected Reference::put_file(const std::string& tenant, const RequestKey& key,
                             const std::string& id, int max_files) {
  if (known(tenant, key, true)) return std::move(expected_);
  if (before_.zset("tfiles:" + tenant).size() >= static_cast<size_t>(max_files)) {
    return refuse("QUOTA", "QUOTA_EXCEEDED");
  }
  remember(tenant, key, id);
  expected_.hashes.insert("file:" + id);
  return answer("OK", "OK " + id);
}

Expected Reference::remove_file(const std::string& tenant, const std::string& id,
                                const RequestKey& key) {
  if (known(tenant, key, false)) return std::move(expected_);
  if (text_of(before_.hash("file:" + id), "tenant") != tenant) {
    return refuse("NOTFOUND", "RESOURCE_NOT_FOUND");
  }
  if (!before_.zset("fileuse:" + id).empty()) return refuse("INUSE", "FILE_IN_USE");
  remember(tenant, key, id);
  expected_.hashes.insert("file:" + id);
  return answer("OK delete", "OK");
}

Expected Reference::archived(const std::string& id, int64_t sequence) {
  const Fields* job = find(id);
  if (job == nullptr || text_of(*job, "purging") == "1") return answer("GONE", "GONE");
  const double last = number_of(*job, "seq"), before = number_of(*job, "archived");
  const double done = std::max(before, std::min(static_cast<double>(sequence), last));
  if (done > before) change(id)["archived"] = whole(done);
  const auto log = before_.streams.find("log:" + id);
  const double length = log == before_.streams.end() ? 0 : static_cast<double>(log->second.length);
  if (length >= 50) {  // the last 50 stay, and what lies in no archive yet
    const double first = std::max(last - length + 1, std::min(last - 49, done + 1));
    expected_.logs[id] = last - first + 1;
  }
  return answer("OK", "OK");
}

Expected Reference::desire_adapter(const std::string& tenant, const std::string& id, bool loaded,
                                   const RequestKey& key) {
  if (known(tenant, key, false)) return std::move(expected_);
  const Fields& adapter = before_.hash("adapter:" + id);
  if (text_of(adapter, "tenant") != tenant) return refuse("NOTFOUND", "RESOURCE_NOT_FOUND");
  remember(tenant, key, id);
  if ((text_of(adapter, "desired") == "loaded") != loaded) {
    expected_.hashes.insert("adapter:" + id);
    expected_.desired[id] = loaded;
    count_up("desired_rev");
    count_up("routes_rev");
  }
  return answer("OK", "OK");
}

Expected Reference::forget_adapter(const std::string& tenant, const std::string& id,
                                   const RequestKey& key) {
  if (known(tenant, key, false)) return std::move(expected_);
  const Fields& adapter = before_.hash("adapter:" + id);
  if (text_of(adapter, "tenant") != tenant) return refuse("NOTFOUND", "RESOURCE_NOT_FOUND");
  if (text_of(adapter, "desired") == "loaded" || !before_.zset("adapteruse:" + id).empty()) {
    return refuse("INUSE", "ADAPTER_IN_USE");
  }
  remember(tenant, key, id);
  expected_.hashes.insert("adapter:" + id);
  count_up("routes_rev");
  return answer("OK delete", "OK");
}

Expected Reference::worker(const std::string& op, const std::string& id) {
  const std::string state = text_of(before_.hash("worker:" + id), "state");
  if (op == "register") {
    expected_.workers[id] = "up";
    return answer("OK", "OK");
  }
  if (state.empty() || state == "gone") return answer("UNKNOWN", "UNKNOWN");
  if (op == "drain") expected_.workers[id] = "draining";
  if (op == "gone") expected_.workers[id] = "gone";
  const bool draining = op == "drain" || state == "draining";
  return answer("OK", draining ? "OK draining" : "OK");
}

}  // namespace dex::model
