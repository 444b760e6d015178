#include "scheduler/store/job_repository.h"

#include "scheduler/store/job_fields.h"

namespace dex::store {

namespace {

using base::Code;
using base::Status;

Status job_not_found(const std::string& id) {
  return base::not_found("RESOURCE_NOT_FOUND", "There is no job '" + id + "'.")
      .with_metadata("resource_type", "job")
      .with_metadata("resource_name", id);
}

Status state_conflict(const std::string& id, const std::string& state) {
  return base::failed_precondition("JOB_STATE_CONFLICT", "The job '" + id + "' is " + state + ".")
      .with_metadata("state", state);
}

Status file_refused(const std::string& id, const std::string& state) {
  if (state == "INVALID") {
    return base::failed_precondition("FILE_INVALID",
                                     "The file '" + id + "' has faults; ListFindings names them.");
  }
  if (state == "LOST") {
    return base::failed_precondition(
        "FILE_INVALID", "The bytes of the file '" + id + "' are gone; upload it again.");
  }
  if (!state.empty()) {
    return base::failed_precondition("FILE_NOT_READY",
                                     "The file '" + id + "' is " + state + ", must be READY.");
  }
  return base::not_found("RESOURCE_NOT_FOUND", "There is no file '" + id + "'.")
      .with_metadata("resource_type", "file")
      .with_metadata("resource_name", id);
}

std::vector<std::string> tail(const Reply& reply) {
  std::vector<std::string> words;
  for (size_t i = 1; i < reply.elements.size(); ++i) words.push_back(reply.str(i));
  return words;
}

Status submit_refused(const Reply& reply) {
  const std::string& word = reply.str(0);
  if (word == "CONFLICT") {
    return idempotency_conflict(reply.str(1));
  }
  if (word == "IDTAKEN")
    return {Code::kAlreadyExists, "ID_TAKEN", "The id " + reply.str(1) + " is in use."};
  if (word == "NOTUNIQUE") {
    return Status(Code::kAlreadyExists, "NAME_TAKEN",
                  "The name is held by the live job " + reply.str(1) + ".")
        .with_metadata("job", reply.str(1));
  }
  if (word == "NOFILE") return file_refused(reply.str(1), reply.str(2));
  if (word == "QUOTA") {
    return {Code::kResourceExhausted, "QUOTA_EXCEEDED",
            "The tenant has " + reply.str(1) + " queued jobs, at most " + reply.str(2) +
                " are allowed."};
  }
  return unexpected("submit", reply);
}

}  // namespace

base::Result<JobRepository::Submitted> JobRepository::submit(const std::string& tenant,
                                                             const Submission& submission) {
  constexpr const char* kAutoTtlMs = "600000";
  std::vector<std::string> args = {tenant,
                                   submission.request.id,
                                   submission.request.digest,
                                   std::to_string(store_.times().idempotency_ms),
                                   submission.auto_hash,
                                   kAutoTtlMs,
                                   submission.marked_as_repeat ? "1" : "0",
                                   std::to_string(submission.jobs.size())};
  for (const NewJob& job : submission.jobs) {
    args.insert(
        args.end(),
        {job.id, job.kind, job.pool, std::to_string(job.priority), std::to_string(job.delay_ms),
         std::to_string(job.max_fail), std::to_string(job.max_crash), job.unique_name,
         std::to_string(job.cost_gpu_seconds), std::to_string(job.gpus),
         std::to_string(job.deadline_ms), job.adapter, job.hold ? "hold" : "run", job.spec,
         join_words(job.files), job.queued_message, job.base_model});
  }
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("submit", std::move(args)));
  if (reply.str(0) == "OK") return Submitted{tail(reply), false};
  if (reply.str(0) == "DUP") return Submitted{tail(reply), true};
  return submit_refused(reply);
}

base::Result<JobRecord> JobRepository::get(const std::string& tenant, const std::string& id) {
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("read", {"job", tenant, id}));
  if (reply.str(0) == "NOTFOUND") return job_not_found(id);
  if (reply.str(0) != "OK") return unexpected("read", reply);
  JobRecord job = job_from(reply.at(1).fields());
  job.spec = reply.str(2);
  job.queue_position = reply.num(3);
  job.tenant_in_ring = reply.num(4) == 1;
  return job;
}

base::Result<std::vector<JobRecord>> JobRepository::list(const std::string& tenant,
                                                         const Cursor& cursor, int count) {
  const std::string before = cursor.before_ms < 0 ? "" : std::to_string(cursor.before_ms);
  DEX_ASSIGN_OR_RETURN(
      const Reply reply,
      store_.run("list", {"job", tenant, before, cursor.before_id, std::to_string(count)}));
  if (reply.str(0) != "OK") return unexpected("list", reply);
  std::vector<JobRecord> jobs;
  for (size_t i = 1; i < reply.elements.size(); ++i) {
    const Reply& row = reply.at(i);
    jobs.push_back(job_from(row.at(2).fields()));
    jobs.back().spec = row.str(3);
    jobs.back().tenant_in_ring = row.num(4) == 1;
  }
  return jobs;
}

base::Result<std::string> JobRepository::change(std::string_view script, const std::string& tenant,
                                                const std::string& id,
                                                std::vector<std::string> more) {
  more.insert(more.begin(), {tenant, id});
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run(script, std::move(more)));
  const std::string& word = reply.str(0);
  if (word == "OK") return reply.str(1);
  if (word == "NOTFOUND") return job_not_found(id);
  if (word == "TERMINAL" || word == "BADSTATE") return state_conflict(id, reply.str(1));
  return unexpected(script, reply);
}

base::Result<JobRepository::Cancelled> JobRepository::cancel(const std::string& tenant,
                                                             const std::string& id,
                                                             const std::string& why,
                                                             const RequestKey& request) {
  DEX_ASSIGN_OR_RETURN(const Reply reply,
                       store_.run("cancel", {tenant, id, why, request.id, request.digest,
                                             std::to_string(store_.times().idempotency_ms)}));
  const std::string& word = reply.str(0);
  if (word == "OK") return Cancelled{reply.str(1), false};
  if (word == "DUP") return Cancelled{"", true};
  if (word == "CONFLICT") return idempotency_conflict(reply.str(1));
  if (word == "NOTFOUND") return job_not_found(id);
  // The second cancel of a job finds what the first one asked for.
  if (word == "TERMINAL" && reply.str(1) == "CANCELLED") return Cancelled{reply.str(1), false};
  if (word == "TERMINAL") return state_conflict(id, reply.str(1));
  return unexpected("cancel", reply);
}
base::Result<std::string> JobRepository::pause(const std::string& tenant, const std::string& id) {
  return change("pause", tenant, id, {});
}
base::Result<std::string> JobRepository::resume(const std::string& tenant, const std::string& id) {
  return change("resume", tenant, id, {});
}

base::Result<std::vector<LogEntry>> JobRepository::log(const std::string& id, int64_t after,
                                                       int count) {
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.command({"XRANGE", store_.key("log:" + id),
                                                          std::to_string(after + 1) + "-0", "+",
                                                          "COUNT", std::to_string(count)}));
  std::vector<LogEntry> entries;
  for (const Reply& entry : reply.elements) entries.push_back(log_from(entry));
  return entries;
}

base::Result<std::vector<std::pair<std::string, std::vector<LogEntry>>>> JobRepository::logs(
    const std::vector<LogPosition>& positions, int count) {
  std::vector<std::pair<std::string, std::vector<LogEntry>>> news;
  if (positions.empty()) return news;
  std::vector<std::string> args = {"XREAD", "COUNT", std::to_string(count), "STREAMS"};
  for (const LogPosition& position : positions) args.push_back(store_.key("log:" + position.id));
  for (const LogPosition& position : positions)
    args.push_back(std::to_string(position.after) + "-0");
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.command(args));
  const size_t skip = store_.key("log:").size();
  for (const Reply& stream : reply.elements) {
    news.emplace_back(stream.str(0).substr(skip), std::vector<LogEntry>());
    for (const Reply& entry : stream.at(1).elements) news.back().second.push_back(log_from(entry));
  }
  return news;
}

base::Result<JobRepository::Claim> JobRepository::claim(const ClaimRequest& request) {
  std::vector<std::string> args = {request.worker, std::to_string(request.slot), request.claim_id,
                                   std::to_string(store_.times().lease_ms),
                                   std::to_string(request.pools.size())};
  args.insert(args.end(), request.pools.begin(), request.pools.end());
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("claim", std::move(args)));
  const std::string& word = reply.str(0);
  if (word == "NONE") return Claim{ClaimAnswer::kNone, {}};
  if (word == "STALE") return Claim{ClaimAnswer::kStale, {}};
  if (word == "DRAIN") return Claim{ClaimAnswer::kDrain, {}};
  if (word == "UNKNOWN") return Claim{ClaimAnswer::kUnknown, {}};
  if (word != "JOB") return unexpected("claim", reply);
  Claim claim{ClaimAnswer::kJob, {}, reply.num(17) == 1};
  ClaimedJob& job = claim.job;
  job.id = reply.str(1);
  job.epoch = reply.num(2);
  job.spec = reply.str(3);
  job.checkpoint = {reply.str(4), reply.str(5), reply.num(6)};
  job.attempt = static_cast<int>(reply.num(7));
  job.ooms = static_cast<int>(reply.num(8));
  job.want = reply.str(9);
  job.kind = reply.str(10);
  job.tenant = reply.str(11);
  job.pool = reply.str(12);
  job.adapter = reply.str(13);
  job.files = split_words(reply.str(14));
  job.waited_ms = reply.num(15);
  return claim;
}

base::Result<JobRepository::BeatReply> JobRepository::beat(const Beat& beat) {
  std::vector<std::string> args = {beat.worker,
                                   beat.id,
                                   std::to_string(beat.epoch),
                                   std::to_string(beat.sequence),
                                   std::to_string(store_.times().lease_ms),
                                   beat.phase,
                                   beat.progress};
  append_checkpoint(beat.checkpoint, args);
  append_events(beat.events, args);
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("beat", std::move(args)));
  const std::string& word = reply.str(0);
  BeatReply answer;
  if (word == "LOST") return answer;
  if (word == "BADARG")
    return base::invalid_argument("INVALID_FIELD", "heartbeat: " + reply.str(1));
  if (word != "OK" && word != "PAUSE" && word != "CANCEL") return unexpected("beat", reply);
  answer.verdict = word == "OK"      ? Verdict::kOk
                   : word == "PAUSE" ? Verdict::kPause
                                     : Verdict::kCancel;
  answer.expires_ms = reply.num(1);
  answer.remaining_ms = reply.num(4);
  answer.fresh = reply.num(3) == 1;
  return answer;
}

base::Result<JobRepository::Finished> JobRepository::finish(const Finish& finish) {
  const StoreTimes& times = store_.times();
  const bool crash = finish.outcome == "crash";
  const double base_ms = crash
                             ? static_cast<double>(times.crash_backoff_ms)
                             : static_cast<double>(times.retry_backoff_ms) * finish.backoff_factor;
  std::vector<std::string> args = {finish.worker,
                                   finish.id,
                                   std::to_string(finish.epoch),
                                   finish.outcome,
                                   std::to_string(static_cast<int64_t>(base_ms)),
                                   finish.result_uri,
                                   finish.result_sha256,
                                   finish.result};
  append_checkpoint(finish.checkpoint, args);
  args.insert(args.end(), {finish.why_code, finish.why, finish.why_details, finish.progress});
  append_events(finish.events, args);
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("finish", std::move(args)));
  const std::string& word = reply.str(0);
  Finished answer;
  answer.state = reply.str(1);
  if (word == "OK") {
    answer.pool = reply.str(2);
    answer.kind = reply.str(3);
    answer.run_seconds = std::strtod(reply.str(4).c_str(), nullptr);
    answer.why_code = reply.str(5);
  } else if (word == "DUP") {
    answer.replayed = true;
  } else if (word == "LOST") {
    answer.lost = true;
    answer.state = "LOST";
  } else if (word == "BADSTATE" || word == "BADARG") {
    return base::invalid_argument("INVALID_FIELD",
                                  "finish '" + finish.outcome + "' refused: " + reply.str(1));
  } else {
    return unexpected("finish", reply);
  }
  return answer;
}

}  // namespace dex::store
