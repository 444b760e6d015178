#include "scheduler/store/job_repository.h"

#include "scheduler/store/alphabet.h"
#include "scheduler/store/job_fields.h"
#include "scheduler/store/refusals.h"

namespace dex::store {

namespace {

using base::Status;

std::vector<std::string> tail(const Reply& reply) {
  std::vector<std::string> words;
  for (size_t i = 1; i < reply.elements.size(); ++i) words.push_back(reply.str(i));
  return words;
}

// What a new job may not have, whoever made it: its parts become keys and words of a list.
Status check_new(const NewJob& job) {
  constexpr size_t kLargestSpec = 32 << 10;
  DEX_RETURN_IF_ERROR(check_store_id("id", job.id));
  DEX_RETURN_IF_ERROR(check_store_id("kind", job.kind));
  DEX_RETURN_IF_ERROR(check_name("pool", job.pool));
  if (!job.adapter.empty()) DEX_RETURN_IF_ERROR(check_word("adapter", job.adapter));
  if (!job.base_model.empty()) DEX_RETURN_IF_ERROR(check_word("model", job.base_model));
  if (!job.unique_name.empty()) DEX_RETURN_IF_ERROR(check_word("unique_name", job.unique_name));
  if (job.priority < 0 || job.priority > 9)
    return base::invalid_field("priority", "must be 0 to 9");
  if (job.spec.size() > kLargestSpec) {
    return base::invalid_field("spec", "has " + std::to_string(job.spec.size()) +
                                           " bytes, at most " + std::to_string(kLargestSpec) +
                                           " are allowed");
  }
  for (const std::string& file : job.files) {
    if (!is_store_id(file)) return file_refused(file, "");
  }
  for (const std::string& adapter : job.adapters) {
    if (!is_word(adapter)) return adapter_not_found(adapter);
  }
  return {};
}

Status check_submission(const std::string& tenant, const JobRepository::Submission& submission) {
  DEX_RETURN_IF_ERROR(check_tenant(tenant));
  DEX_RETURN_IF_ERROR(check_request(submission.request));
  for (const NewJob& job : submission.jobs) DEX_RETURN_IF_ERROR(check_new(job));
  return {};
}

}  // namespace

base::Result<JobRepository::Submitted> JobRepository::submit(const std::string& tenant,
                                                             const Submission& submission) {
  constexpr const char* kAutoTtlMs = "600000";
  DEX_RETURN_IF_ERROR(check_submission(tenant, submission));
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
         join_words(job.files), job.queued_message, job.base_model, join_words(job.adapters)});
  }
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("submit", std::move(args)));
  if (reply.str(0) == "OK") return Submitted{tail(reply), false};
  if (reply.str(0) == "DUP") return Submitted{tail(reply), true};
  return entry_refused("submit", reply);
}

base::Result<JobRecord> JobRepository::get(const std::string& tenant, const std::string& id) {
  if (!is_name(tenant) || !is_store_id(id)) return job_not_found(id);
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("read", {"job", tenant, id}));
  if (reply.str(0) == "NOTFOUND") return job_not_found(id);
  if (reply.str(0) != "OK") return unexpected("read", reply);
  JobRecord job = job_from(reply.at(1).fields());
  job.spec = reply.str(2);
  job.queue_position = reply.num(3);
  job.tenant_in_ring = reply.num(4) == 1;
  job.lacks_model = reply.num(6) == 1;
  return job;
}

base::Result<std::vector<JobRecord>> JobRepository::list(const std::string& tenant,
                                                         const Cursor& cursor, int count) {
  DEX_ASSIGN_OR_RETURN(const auto rows, store_.list("job", tenant, cursor, count));
  std::vector<JobRecord> jobs;
  for (const Reply& row : rows) {
    jobs.push_back(job_from(row.at(2).fields()));
    jobs.back().spec = row.str(3);
    jobs.back().tenant_in_ring = row.num(4) == 1;
    jobs.back().lacks_model = row.num(5) == 1;
  }
  return jobs;
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

base::Result<std::vector<LogEntry>> JobRepository::log_back(const std::string& id, int64_t before,
                                                            int count) {
  const std::string end = before > 0 ? "(" + std::to_string(before) + "-0" : "+";
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.command({"XREVRANGE", store_.key("log:" + id), end,
                                                          "-", "COUNT", std::to_string(count)}));
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

base::Result<bool> JobRepository::exist(const std::vector<LogPosition>& positions) {
  if (positions.empty()) return true;
  std::vector<std::string> args = {"EXISTS"};
  for (const LogPosition& position : positions) args.push_back(store_.key("job:" + position.id));
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.command(args));
  return reply.as_int() == static_cast<int64_t>(positions.size());
}

base::Result<JobRepository::Claim> JobRepository::claim(const ClaimRequest& request) {
  DEX_RETURN_IF_ERROR(check_word("worker", request.worker));
  DEX_RETURN_IF_ERROR(check_word("claim_id", request.claim_id));
  for (const std::string& pool : request.pools) DEX_RETURN_IF_ERROR(check_name("pool", pool));
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
  answer.checkpoint_request = reply.str(2);
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
  args.push_back(std::to_string(finish.trained_tokens));
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
