// The calls of the model test: what each is sent, drawn so that every answer of jobs.md §3 comes
// up.
#include <algorithm>

#include "tests/integration/scheduler_model/answers.h"
#include "tests/integration/scheduler_model/world.h"

namespace dex::model {

using support::text_of;

namespace {

constexpr size_t kMostLive = 40;      // so that reading the store stays cheap
constexpr size_t kMostAttempts = 12;  // that workers remember
constexpr int64_t kDay_ms = 86400000;

}  // namespace

store::NewJob World::random_job(const std::string& who) {
  store::NewJob job;
  job.id = new_name("ftjob-m");
  if (!current_.jobs.empty() && dice_.chance(4)) job.id = job_in({"READY"});
  job.spec = "spec-of-" + job.id;
  job.pool = dice_.chance(70) ? "cpu" : "gpu";
  job.priority = dice_.pick(10);
  job.delay_ms = dice_.chance(20) ? 1 + dice_.pick(20000) : 0;
  job.deadline_ms = dice_.chance(15) ? 1 + dice_.pick(60000) : 0;
  job.hold = dice_.chance(12);
  job.max_fail = dice_.pick(3);
  job.max_crash = dice_.pick(3);
  job.unique_name = dice_.chance(45) ? "u" + std::to_string(dice_.pick(4)) : "";
  job.cost_gpu_seconds = dice_.pick(50);
  job.gpus = 1 + dice_.pick(2);
  if (dice_.chance(75)) job.adapter = "ft:b:t::" + job.id;
  if (const auto made = adapters_of(""); !made.empty() && dice_.chance(15)) {
    const auto own = adapters_of(who);
    job.adapters = {!own.empty() && dice_.chance(85) ? dice_.of(own) : dice_.of(made)};
    if (dice_.chance(10)) job.adapters = {"ft:b:t::none"};
  }
  if (dice_.chance(20)) job.base_model = dice_.chance(50) ? "a" : "b";
  if (dice_.chance(5)) job.files.emplace_back("file-missing");
  if (!dice_.chance(40)) return job;
  std::vector<std::string> own, all;
  for (const auto& [name, file] : current_.hashes) {
    if (!name.starts_with("file:")) continue;
    all.push_back(name.substr(5));
    if (text_of(file, "tenant") == who) own.push_back(name.substr(5));
  }
  if (!own.empty() && dice_.chance(90)) {
    job.files.push_back(dice_.of(own));
  } else if (!all.empty()) {
    job.files.push_back(dice_.of(all));
  }
  return job;
}

void World::submit() {
  if (live() >= kMostLive) return move_clock();
  const std::string who = tenant();
  store::JobRepository::Submission submission;
  submission.request = request("submit", who, 100);
  if (dice_.chance(10)) {  // an HTTP call without a key of its own: its body is all there is
    const std::string body = "submit-body" + std::to_string(dice_.pick(4));
    submission.request = {new_name("submit-"), body};
    submission.auto_hash = body;
    submission.marked_as_repeat = dice_.chance(50);
  }
  const int n = dice_.chance(4) ? 6 : 1 + dice_.pick(3);
  for (int i = 0; i < n; ++i) submission.jobs.push_back(random_job(who));
  if (n > 1 && dice_.chance(8)) {
    submission.jobs[0].unique_name = submission.jobs[1].unique_name = "u" + std::to_string(made_);
  }
  // Ids of one call differ: the scheduler makes them.
  std::set<std::string> ids;
  for (const store::NewJob& job : submission.jobs) {
    if (!ids.insert(job.id).second) return;
  }
  Scheduler& at = scheduler();
  act(
      "submit", reference().submit(who, submission),
      [&] { return answer_of(at.jobs.submit(who, submission)); }, Repeat::kHalf);
}

void World::claim(const std::string& who) {
  static const std::vector<std::vector<std::string>> pools = {
      {"cpu"}, {"gpu"}, {"cpu", "gpu"}, {"gpu", "cpu"}};
  store::JobRepository::ClaimRequest claim;
  claim.worker = who;
  claim.slot = dice_.pick(2);
  claim.pools = dice_.of(pools);
  claim.claim_id = new_name("c");
  const std::string last =
      text_of(current_.hash("worker:" + who), "cid:" + std::to_string(claim.slot));
  if (!last.empty() && dice_.chance(15)) claim.claim_id = last;
  Scheduler& at = scheduler();
  const Expected expected = reference().claim(claim);
  act(
      "claim", expected, [&] { return answer_of(at.jobs.claim(claim)); }, Repeat::kHalf);
  if (expected.word != "JOB" || !wrong_.empty()) return;
  const auto& [id, job] = *expected.jobs.begin();
  attempts_.push_back({id, who, static_cast<int64_t>(support::number_of(job, "epoch")), 0});
  if (attempts_.size() > kMostAttempts) attempts_.erase(attempts_.begin());
}

void World::beat(Attempt& attempt) {
  store::JobRepository::Beat beat;
  beat.worker = dice_.chance(93) ? attempt.worker : worker();
  beat.id = attempt.job;
  beat.epoch = attempt.epoch + (dice_.chance(5) ? dice_.pick(3) - 1 : 0);
  beat.sequence = dice_.chance(85) ? ++attempt.beats : attempt.beats;
  beat.phase = dice_.chance(50) ? "TRAINING" : "VALIDATING";
  beat.progress = dice_.chance(98) ? "p" + std::to_string(attempt.beats) : std::string(513, 'p');
  if (dice_.chance(40)) {
    beat.checkpoint = {"ck-" + std::to_string(attempt.epoch) + "-" + std::to_string(attempt.beats),
                       "sha", attempt.beats};
  }
  if (dice_.chance(30)) beat.events = {{0, "INFO", "metrics", "m", "d"}};
  // So many that the log is cut when it is archived.
  if (dice_.chance(25)) {
    beat.events.assign(static_cast<size_t>(40 + dice_.pick(85)), {0, "INFO", "metrics", "m", "d"});
  }
  if (dice_.chance(1)) beat.events.assign(129, {0, "INFO", "metrics", "m", "d"});
  Scheduler& at = scheduler();
  act(
      "beat", reference().beat(beat), [&] { return answer_of(at.jobs.beat(beat)); }, Repeat::kHalf);
}

void World::finish(const Attempt& attempt, const std::string& outcome) {
  store::JobRepository::Finish finish;
  finish.worker = dice_.chance(93) ? attempt.worker : worker();
  finish.id = attempt.job;
  finish.epoch = attempt.epoch + (dice_.chance(5) ? dice_.pick(3) - 1 : 0);
  finish.outcome = outcome;
  finish.why_code = "internal";
  finish.why = "model";
  if (outcome == "success" && dice_.chance(96)) {
    finish.result_uri = "result-" + std::to_string(attempt.epoch);
    finish.result_sha256 = "sha";
  }
  if (dice_.chance(20)) {
    finish.checkpoint = {"last-" + std::to_string(attempt.epoch), "sha", attempt.beats + 1};
  }
  if (dice_.chance(20)) finish.events = {{0, "INFO", "metrics", "m", "d"}};
  Scheduler& at = scheduler();
  act(
      "finish", reference().finish(finish), [&] { return answer_of(at.jobs.finish(finish)); },
      Repeat::kHalf);
}

void World::random_finish() {
  static const std::vector<std::string> outcomes = {
      "success", "success", "fail_retry", "fail_retry", "fail_final", "crash",  "crash",    "oom",
      "oom",     "release", "disk_full",  "disk_full",  "disk_full",  "paused", "cancelled"};
  if (attempts_.empty()) return;
  const auto cancelling = [&](const Attempt& attempt) {
    const auto job = current_.jobs.find(attempt.job);
    return job != current_.jobs.end() && text_of(job->second, "state") == "CANCELLING" &&
           text_of(job->second, "epoch") == std::to_string(attempt.epoch);
  };
  std::vector<size_t> stopping;
  for (size_t i = 0; i < attempts_.size(); ++i) {
    if (cancelling(attempts_[i])) stopping.push_back(i);
  }
  auto index = static_cast<size_t>(dice_.pick(static_cast<int>(attempts_.size())));
  if (!stopping.empty() && dice_.chance(25)) index = dice_.of(stopping);
  const Attempt attempt = attempts_[index];
  std::string outcome = dice_.chance(4) ? "nonsense" : dice_.of(outcomes);
  if (cancelling(attempt) && dice_.chance(60)) outcome = dice_.chance(60) ? "cancelled" : "success";
  if (const auto job = current_.jobs.find(attempt.job); job != current_.jobs.end()) {
    const bool ended = text_of(job->second, "fin_epoch") == std::to_string(attempt.epoch);
    if (ended && dice_.chance(40)) outcome = text_of(job->second, "fin_out");  // once more
  }
  finish(attempt, outcome);
  // Those that are kept are zombies from now on, and repeat themselves.
  if (dice_.chance(70)) attempts_.erase(attempts_.begin() + static_cast<std::ptrdiff_t>(index));
}

void World::cancel() {
  static const std::vector<std::vector<std::string>> states = {
      {"RUNNING"}, {"RUNNING"}, {"READY", "DELAYED", "PAUSED"}, {"CANCELLING"}, {"FAILED"}};
  const std::string id = job_in(dice_.of(states));
  const std::string who = owner_of(id);
  const store::RequestKey key = request("cancel", who, 90);
  Scheduler& at = scheduler();
  act(
      "cancel", reference().cancel(who, id, key),
      [&] { return answer_of(at.jobs.cancel(who, id, "model", key)); }, Repeat::kHalf);
}

void World::pause() {
  static const std::vector<std::vector<std::string>> states = {
      {"RUNNING"},    {"RUNNING"},    {"READY", "DELAYED"},
      {"CANCELLING"}, {"CANCELLING"}, {"PAUSED", "SUCCEEDED"}};
  const std::string id = job_in(dice_.of(states));
  std::string who = owner_of(id);
  const store::RequestKey key = request_again("pause", who, 50, 20);
  Scheduler& at = scheduler();
  act(
      "pause", reference().pause(who, id, key),
      [&] { return answer_of(at.jobs.pause(who, id, key)); }, Repeat::kHalf);
}

void World::resume() {
  static const std::vector<std::vector<std::string>> states = {
      {"PAUSED"},     {"PAUSED"},     {"RUNNING", "READY"},
      {"CANCELLING"}, {"CANCELLING"}, {"SUCCEEDED", "FAILED"}};
  const std::string id = job_in(dice_.of(states));
  std::string who = owner_of(id);
  const store::RequestKey key = request_again("resume", who, 50, 20);
  Scheduler& at = scheduler();
  act(
      "resume", reference().resume(who, id, key),
      [&] { return answer_of(at.jobs.resume(who, id, key)); }, Repeat::kHalf);
}

// Most jobs that are redriven have nothing against it, so others are looked for, and made: a name
// that is taken, a file that is gone, a mark, a redrive that was, a full queue.
void World::redrive() {
  const int aim = dice_.pick(100);
  const bool again = aim >= 52 && aim < 60;
  const auto fits = [&](const Fields& job) {
    const std::string name = "uniq:" + text_of(job, "tenant") + ":" + text_of(job, "uniq");
    const bool failed = text_of(job, "state") == "FAILED";
    if (aim < 20) return failed && !text_of(job, "uniq").empty() && current_.strings.contains(name);
    if (aim < 40) {
      const std::vector<std::string> files = support::words_of(text_of(job, "files"));
      return failed && std::any_of(files.begin(), files.end(), [&](const std::string& file) {
               return !current_.hashes.contains("file:" + file);
             });
    }
    if (aim < 52) return failed && text_of(job, "purging") == "1";
    if (again) return !text_of(job, "op_id").empty();
    const std::string& owner = text_of(job, "tenant");
    const bool full = static_cast<double>(current_.zset("twait:" + owner).size()) >=
                      support::number_of(current_.hash("tenant:" + owner), "max_queued");
    return failed && (aim >= 78 || full);
  };
  std::vector<std::string> fitting;
  for (const auto& [other, job] : current_.jobs) {
    if (fits(job)) fitting.push_back(other);
  }
  if (fitting.empty() && aim < 78 && dice_.chance(70)) return obstruct_redrive(aim);
  const std::vector<std::string> others =
      aim >= 78 ? std::vector<std::string>{"FAILED"}
                : std::vector<std::string>{"SUCCEEDED", "CANCELLED", "READY"};
  const std::string id = fitting.empty() ? job_in(others) : dice_.of(fitting);
  const std::string who = owner_of(id);
  std::string op_id = new_name("op-");
  if (again && !fitting.empty()) op_id = text_of(current_.jobs.at(id), "op_id");
  const int64_t deadline_ms = dice_.chance(20) ? 1 + dice_.pick(60000) : 0;
  const store::RequestKey operation = {op_id, "digest of " + op_id};
  Scheduler& at = scheduler();
  act(
      "redrive", reference().redrive(who, id, operation, deadline_ms),
      [&] { return answer_of(at.jobs.redrive(who, id, operation, deadline_ms)); }, Repeat::kHalf);
}

void World::obstruct_redrive(int aim) {
  if (aim >= 20 && aim < 40) return remove_file();
  if (aim >= 40 && aim < 52) return purge();
  submit();
}

void World::update() {
  const std::string id = dice_.chance(20) ? job_in({"SUCCEEDED", "FAILED", "CANCELLED"})
                                          : job_in({"READY", "READY", "RUNNING", "DELAYED"});
  std::string who = owner_of(id);
  store::JobRepository::Update update;
  const auto job = current_.jobs.find(id);
  if (job != current_.jobs.end() && dice_.chance(30)) update.etag = text_of(job->second, "rev");
  if (dice_.chance(10)) update.etag = "no-etag";
  if (dice_.chance(70)) update.priority = dice_.pick(10);
  if (dice_.chance(20)) update.metadata = "m" + std::to_string(dice_.pick(3));
  if (dice_.chance(20)) update.name = "n" + std::to_string(dice_.pick(3));
  const store::RequestKey key = request_again("update", who, 60, 20);
  Scheduler& at = scheduler();
  // Without a request_id the first call's own change makes the etag of the second an old one.
  const bool repeatable = !key.id.empty() || update.etag.empty();
  act(
      "update", reference().update(who, id, update, key),
      [&] { return answer_of(at.jobs.update(who, id, update, key)); },
      repeatable ? Repeat::kHalf : Repeat::kNever);
}

void World::purge() {
  std::vector<std::string> marked;
  for (const auto& [id, job] : current_.jobs) {
    if (text_of(job, "purging") == "1") marked.push_back(id);
  }
  const bool commit = dice_.chance(50);
  std::string id = dice_.chance(15) ? job_in({"READY", "RUNNING"})
                                    : job_in({"SUCCEEDED", "FAILED", "CANCELLED"});
  if (commit && !marked.empty() && dice_.chance(60)) id = dice_.of(marked);
  if (dice_.chance(15)) id = "ftjob-none";
  std::string who = dice_.chance(30) ? "" : owner_of(id);
  Scheduler& at = scheduler();
  if (!commit) {
    const int64_t retention_ms =
        who.empty() ? (dice_.chance(60) ? kDay_ms : 1000) : (dice_.chance(80) ? 0 : 60000);
    act(
        "purge", reference().purge_mark(who, id, retention_ms, {}),
        [&] { return answer_of(at.jobs.purge_mark(who, id, retention_ms)); }, Repeat::kHalf);
    return;
  }
  const store::RequestKey key =
      who.empty() ? store::RequestKey{} : request_again("purge", who, 90, 60);
  // Without a request_id the second commit finds no job.
  act(
      "purge", reference().purge_commit(who, id, key),
      [&] { return answer_of(at.jobs.purge_commit(who, id, key)); },
      key.id.empty() ? Repeat::kNever : Repeat::kHalf);
}

void World::ask_checkpoint() {
  static const std::vector<std::vector<std::string>> states = {
      {"RUNNING"}, {"RUNNING"}, {"RUNNING"}, {"CANCELLING", "READY"}, {"SUCCEEDED", "FAILED"}};
  const std::string id = job_in(dice_.of(states));
  std::string who = owner_of(id);
  const std::string checkpoint = new_name("ckpt-");
  const store::RequestKey key = request_again("checkpoint", who, 60, 25);
  Scheduler& at = scheduler();
  act(
      "checkpoint", reference().ask_checkpoint(who, id, checkpoint, key),
      [&] { return answer_of(at.jobs.ask_checkpoint(who, id, checkpoint, key)); }, Repeat::kHalf);
}

void World::set_tenant() {
  const std::string who = tenant();
  const int weight = 1 + dice_.pick(3), queued = 4 + dice_.pick(14), running = dice_.pick(5);
  const double day = dice_.chance(50) ? 20 + dice_.pick(200) : 0;
  Scheduler& at = scheduler();
  Expected expected;
  expected.word = expected.reply = "OK";
  act(
      "tenant", expected,
      [&] {
        const base::Status status = at.shard.set_tenant(who, weight, queued, running, day);
        return status.ok() ? std::string("OK") : refused(status);
      },
      Repeat::kHalf);
}

void World::worker_says() {
  const std::string who = worker();
  const int what = dice_.pick(100);
  const std::string op = what < 45   ? "register"
                         : what < 85 ? "alive"
                         : what < 94 ? "drain"
                                     : "gone";
  Scheduler& at = scheduler();
  store::WorkerRecord record;
  record.id = who;
  record.pools = {"cpu", "gpu"};
  record.slots = 2;
  if (dice_.chance(40)) record.models = {"a"};
  const auto call = [&] {
    if (op == "register") return answer_of(at.workers.enlist(record));
    if (op == "alive") return answer_of(at.workers.alive(who, "live"));
    return answer_of(op == "drain" ? at.workers.drain(who) : at.workers.gone(who));
  };
  // Who registers again may hold other things, so routes are always read again; who has gone is not
  // known any more.
  const bool repeatable = op == "alive" || op == "drain";
  act("worker", reference().worker(op, who), call, repeatable ? Repeat::kHalf : Repeat::kNever);
}

}  // namespace dex::model
