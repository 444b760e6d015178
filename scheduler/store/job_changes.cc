// What clients, operators and the janitor do to a job that exists. The rest of JobRepository is in
// job_repository.cc.
#include "scheduler/store/alphabet.h"
#include "scheduler/store/job_repository.h"
#include "scheduler/store/refusals.h"

namespace dex::store {

namespace {

// The words that mean the same in every script a client's call runs; nullopt: another one.
std::optional<base::Status> usual_refusal(const std::string& id, const Reply& reply) {
  const std::string& word = reply.str(0);
  if (word == "CONFLICT") return idempotency_conflict(reply.str(1));
  if (word == "NOTFOUND") return job_not_found(id);
  if (word == "TERMINAL" || word == "BADSTATE" || word == "PURGING" || word == "YOUNG" ||
      word == "NOTMARKED") {
    return state_conflict(id, reply.str(1));
  }
  return std::nullopt;
}

// A caller's job: an id outside the alphabet is no job's, so it reads like one that is missing.
base::Status check_owner(const std::string& tenant, const std::string& id,
                         const RequestKey& request) {
  DEX_RETURN_IF_ERROR(check_tenant(tenant));
  DEX_RETURN_IF_ERROR(check_request(request));
  return is_store_id(id) ? base::Status() : job_not_found(id);
}

}  // namespace

base::Result<JobRepository::Changed> JobRepository::change(std::string_view script,
                                                           const std::string& tenant,
                                                           const std::string& id,
                                                           const RequestKey& request,
                                                           std::vector<std::string> more) {
  DEX_RETURN_IF_ERROR(check_owner(tenant, id, request));
  more.insert(more.begin(), {tenant, id});
  more.insert(more.end(),
              {request.id, request.digest, std::to_string(store_.times().idempotency_ms)});
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run(script, std::move(more)));
  const std::string& word = reply.str(0);
  if (word == "OK") return Changed{reply.str(1), false};
  if (word == "DUP") return Changed{"", true};
  // The second cancel of a job finds what the first one asked for.
  if (script == "cancel" && word == "TERMINAL" && reply.str(1) == "CANCELLED")
    return Changed{reply.str(1), false};
  if (word == "STALE") {
    return base::Status(base::Code::kAborted, "ETAG_MISMATCH",
                        "The job '" + id + "' has changed since: its etag is " + reply.str(1) + ".")
        .with_metadata("etag", reply.str(1));
  }
  if (auto refusal = usual_refusal(id, reply)) return *std::move(refusal);
  return unexpected(script, reply);
}

base::Result<JobRepository::Changed> JobRepository::cancel(const std::string& tenant,
                                                           const std::string& id,
                                                           const std::string& why,
                                                           const RequestKey& request) {
  return change("cancel", tenant, id, request, {why});
}
base::Result<JobRepository::Changed> JobRepository::pause(const std::string& tenant,
                                                          const std::string& id,
                                                          const RequestKey& request) {
  return change("pause", tenant, id, request, {});
}
base::Result<JobRepository::Changed> JobRepository::resume(const std::string& tenant,
                                                           const std::string& id,
                                                           const RequestKey& request) {
  return change("resume", tenant, id, request, {});
}

base::Result<JobRepository::Changed> JobRepository::update(const std::string& tenant,
                                                           const std::string& id,
                                                           const Update& update,
                                                           const RequestKey& request) {
  constexpr size_t kLargestMetadata = 16 << 10;  // 16 pairs of api.md §1 and their framing
  constexpr size_t kLongestName = 256;
  if (update.priority && (*update.priority < 0 || *update.priority > 9))
    return base::invalid_field("priority", "must be 0 to 9");
  if (update.metadata && update.metadata->size() > kLargestMetadata)
    return base::invalid_field("metadata", "is too large");
  if (update.name && update.name->size() > kLongestName)
    return base::invalid_field("display_name", "is too long");
  return change("reprio", tenant, id, request,
                {update.etag, update.priority ? std::to_string(*update.priority) : "",
                 update.metadata ? "1" : "0", update.metadata.value_or(""), update.name ? "1" : "0",
                 update.name.value_or("")});
}

base::Result<JobRepository::Changed> JobRepository::redrive(const std::string& tenant,
                                                            const std::string& id,
                                                            const RequestKey& operation,
                                                            int64_t deadline_ms) {
  DEX_RETURN_IF_ERROR(check_owner(tenant, id, {}));
  DEX_RETURN_IF_ERROR(check_word("op_id", operation.id));
  if (deadline_ms < 0) return base::invalid_field("deadline_seconds", "must not be negative");
  DEX_ASSIGN_OR_RETURN(
      const Reply reply,
      store_.run("redrive", {tenant, id, operation.id, std::to_string(deadline_ms),
                             operation.digest, std::to_string(store_.times().idempotency_ms)}));
  if (reply.str(0) == "OK") return Changed{reply.str(1), false};
  if (reply.str(0) == "DUP") return Changed{"", true};
  if (auto refusal = usual_refusal(id, reply)) return *std::move(refusal);
  return entry_refused("redrive", reply);
}

base::Result<JobRepository::Asked> JobRepository::ask_checkpoint(const std::string& tenant,
                                                                 const std::string& id,
                                                                 const std::string& checkpoint_id,
                                                                 const RequestKey& request) {
  DEX_RETURN_IF_ERROR(check_owner(tenant, id, request));
  DEX_RETURN_IF_ERROR(check_store_id("checkpoint", checkpoint_id));
  DEX_ASSIGN_OR_RETURN(
      const Reply reply,
      store_.run("checkpoint", {"ask", tenant, id, checkpoint_id, request.id, request.digest,
                                std::to_string(store_.times().idempotency_ms)}));
  if (reply.str(0) == "OK") return Asked{reply.str(1), false};
  if (reply.str(0) == "DUP") return Asked{reply.str(1), true};
  if (auto refusal = usual_refusal(id, reply)) return *std::move(refusal);
  return unexpected("checkpoint", reply);
}

base::Result<JobRepository::AskedCheckpoint> JobRepository::asked_checkpoint(
    const std::string& tenant, const std::string& id, const std::string& checkpoint_id) {
  DEX_RETURN_IF_ERROR(check_owner(tenant, id, {}));
  DEX_ASSIGN_OR_RETURN(const Reply reply,
                       store_.run("checkpoint", {"look", tenant, id, checkpoint_id}));
  const std::string& word = reply.str(0);
  AskedCheckpoint asked;
  if (word == "NONE") return asked;
  if (word == "PENDING") {
    asked.state = AskedCheckpoint::State::kPending;
    return asked;
  }
  if (word == "NOTFOUND") return job_not_found(id);
  if (word != "WRITTEN") return unexpected("checkpoint", reply);
  asked.state = AskedCheckpoint::State::kWritten;
  asked.at_ms = reply.num(1);
  asked.checkpoint = {reply.str(4), reply.str(3), reply.num(2)};
  return asked;
}

base::Result<JobRepository::Purge> JobRepository::purge(const std::string& op,
                                                        const std::string& tenant,
                                                        const std::string& id, int64_t retention_ms,
                                                        const RequestKey& request) {
  if (!tenant.empty()) DEX_RETURN_IF_ERROR(check_owner(tenant, id, request));
  DEX_ASSIGN_OR_RETURN(
      const Reply reply,
      store_.run("purge", {op, tenant, id, std::to_string(retention_ms), request.id, request.digest,
                           std::to_string(store_.times().idempotency_ms)}));
  if (reply.str(0) == "OK") return Purge::kDone;
  if (reply.str(0) == "DUP") return Purge::kReplayed;
  if (reply.str(0) == "GONE") return Purge::kGone;
  if (auto refusal = usual_refusal(id, reply)) return *std::move(refusal);
  return entry_refused("purge", reply);
}

base::Result<JobRepository::Purge> JobRepository::purge_mark(const std::string& tenant,
                                                             const std::string& id,
                                                             int64_t retention_ms,
                                                             const RequestKey& request) {
  return purge("mark", tenant, id, retention_ms, request);
}
base::Result<JobRepository::Purge> JobRepository::purge_commit(const std::string& tenant,
                                                               const std::string& id,
                                                               const RequestKey& request) {
  return purge("commit", tenant, id, 0, request);
}

base::Result<std::vector<JobRepository::FinishedJob>> JobRepository::finished(
    int64_t cursor_ms, const std::string& cursor_id, int count) {
  const std::string after = cursor_ms < 0 ? "" : std::to_string(cursor_ms);
  DEX_ASSIGN_OR_RETURN(const Reply reply,
                       store_.run("finished", {after, cursor_id, std::to_string(count)}));
  if (reply.str(0) != "OK") return unexpected("finished", reply);
  std::vector<FinishedJob> jobs;
  for (size_t i = 1; i < reply.elements.size(); ++i) {
    const Reply& row = reply.at(i);
    jobs.push_back(
        {row.str(0), row.str(2), row.str(3), row.num(1), row.num(4), row.num(5), row.num(6) == 1});
  }
  return jobs;
}

base::Result<bool> JobRepository::archived(const std::string& id, int64_t sequence) {
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("archived", {id, std::to_string(sequence)}));
  if (reply.str(0) != "OK" && reply.str(0) != "GONE") return unexpected("archived", reply);
  return reply.str(0) == "OK";
}

}  // namespace dex::store
