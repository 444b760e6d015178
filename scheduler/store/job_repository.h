#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "scheduler/store/records.h"
#include "scheduler/store/store.h"
#include "services/base/status.h"

namespace dex::store {

// The jobs of every tenant and everything that may happen to them (jobs.md §2, §3). Each method is
// one script, so it happens whole or not at all, and may be repeated. Thread-safe; every call
// blocks for a round trip and can answer UNAVAILABLE STORE_UNAVAILABLE besides what is named here.
class JobRepository {
 public:
  explicit JobRepository(Store& store) : store_(store) {}  // the store outlives this object

  struct Submission {
    RequestKey request;     // of what the client sent, not of what was resolved from it
    std::string auto_hash;  // of an HTTP call without a key; empty: none
    bool marked_as_repeat = false;
    std::vector<NewJob> jobs;  // 1–64
  };
  struct Submitted {
    std::vector<std::string> ids;
    bool replayed = false;  // the request_id was known: these are the first call's jobs
  };
  // All or none. ALREADY_EXISTS IDEMPOTENCY_CONFLICT, NAME_TAKEN, ID_TAKEN (make new ids and
  // repeat); NOT_FOUND RESOURCE_NOT_FOUND (a file or an adapter); FAILED_PRECONDITION
  // FILE_NOT_READY, FILE_INVALID; RESOURCE_EXHAUSTED QUOTA_EXCEEDED.
  base::Result<Submitted> submit(const std::string& tenant, const Submission& submission);

  // RESOURCE_NOT_FOUND for a missing job and for another tenant's alike, here and below.
  base::Result<JobRecord> get(const std::string& tenant, const std::string& id);
  // Newest first, at most 100.
  base::Result<std::vector<JobRecord>> list(const std::string& tenant, const Cursor& cursor,
                                            int count);
  // Ends a waiting job at once, orders a running one to stop; OK also for one that is CANCELLED or
  // CANCELLING. FAILED_PRECONDITION JOB_STATE_CONFLICT names the state of a job that ended
  // otherwise.
  struct Changed {
    std::string state;      // stored, afterwards; of a replay: empty
    bool replayed = false;  // `request` was known: nothing was done, whatever the job is now
    bool ended = false;     // by this cancel, of all that there were: who counts ends counts it
  };
  base::Result<Changed> cancel(const std::string& tenant, const std::string& id,
                               const std::string& why, const RequestKey& request = {});
  // JOB_STATE_CONFLICT as above, also for a job that is being cancelled.
  base::Result<Changed> pause(const std::string& tenant, const std::string& id,
                              const RequestKey& request = {});
  base::Result<Changed> resume(const std::string& tenant, const std::string& id,
                               const RequestKey& request = {});
  // Puts a FAILED job back into the queue with all counters at 0 (T15). `operation` is needed: it
  // makes a repeat harmless, also after later operations. `deadline_ms` counts from now, 0: none.
  // JOB_STATE_CONFLICT unless FAILED and not being deleted; else refused like submit: files,
  // adapters, name, quota.
  base::Result<Changed> redrive(const std::string& tenant, const std::string& id,
                                const RequestKey& operation, int64_t deadline_ms);
  // What may change of a job that exists (T16); what is unset stays.
  struct Update {
    std::string etag;  // JobRecord::revision as text; empty: whatever it is
    std::optional<int> priority;
    std::optional<std::string> metadata;  // opaque, ≤ 16 KiB
    std::optional<std::string> name;
  };
  // ABORTED ETAG_MISMATCH; JOB_STATE_CONFLICT for the priority of a job that ended.
  base::Result<Changed> update(const std::string& tenant, const std::string& id,
                               const Update& update, const RequestKey& request = {});

  // A checkpoint that a user wants now. The worker hears of it in the reply to its next beat; the
  // first new checkpoint that it offers afterwards is the answer. JOB_STATE_CONFLICT unless
  // RUNNING.
  struct Asked {
    std::string checkpoint_id;  // ask for this one: another's when one is on its way already
    bool replayed = false;
  };
  base::Result<Asked> ask_checkpoint(const std::string& tenant, const std::string& id,
                                     const std::string& checkpoint_id,
                                     const RequestKey& request = {});
  struct AskedCheckpoint {
    enum class State { kPending, kWritten, kNone };
    State state = State::kNone;  // kNone: never asked for, or the job ended before it came
    Checkpoint checkpoint;       // kWritten
    int64_t at_ms = 0;           // kWritten: when it was acknowledged
  };
  base::Result<AskedCheckpoint> asked_checkpoint(const std::string& tenant, const std::string& id,
                                                 const std::string& checkpoint_id);

  // The end of a job's record (T17), in two steps: between them the caller removes its artefacts.
  // `tenant` empty: the janitor, whose retention is at least a day.
  enum class Purge {
    kDone,      // marked, or gone
    kGone,      // the janitor's job was gone before
    kReplayed,  // `request` was known
  };
  // Terminal for `retention_ms` or longer, else JOB_STATE_CONFLICT. Nothing but the commit may
  // follow.
  base::Result<Purge> purge_mark(const std::string& tenant, const std::string& id,
                                 int64_t retention_ms, const RequestKey& request = {});
  // JOB_STATE_CONFLICT without the mark. A published adapter stays.
  base::Result<Purge> purge_commit(const std::string& tenant, const std::string& id,
                                   const RequestKey& request = {});
  // A terminal job as the archiver and the janitor see it.
  struct FinishedJob {
    std::string id, tenant, kind;
    int64_t finished_ms = 0;
    int64_t sequence = 0, archived = 0;  // archived < sequence: events are not in the archive yet
    bool purging = false;
  };
  // Jobs of every tenant that ended after (cursor_ms, cursor_id), the last row of the page before;
  // -1: from the oldest. Oldest first, at most 100; fewer than `count`: the last page. An entry
  // without a tenant is no job any more and only keeps its place in the page.
  base::Result<std::vector<FinishedJob>> finished(int64_t cursor_ms, const std::string& cursor_id,
                                                  int count);
  // The events of a job up to `sequence` lie in its archive; the log keeps the last 50 and what
  // came later. False: there is no such job, or it is about to go.
  base::Result<bool> archived(const std::string& id, int64_t sequence);

  // Entries with sequence > after, oldest first. Ask only for a job that get() showed.
  base::Result<std::vector<LogEntry>> log(const std::string& id, int64_t after, int count);
  // Entries with sequence < before (0: all), newest first.
  base::Result<std::vector<LogEntry>> log_back(const std::string& id, int64_t before, int count);
  struct LogPosition {
    std::string id;
    int64_t after = 0;
  };
  // The same for many jobs in one round trip; only jobs with news are in the answer.
  base::Result<std::vector<std::pair<std::string, std::vector<LogEntry>>>> logs(
      const std::vector<LogPosition>& positions, int count);
  // Whether all of these jobs are there still, in one round trip. No id may come twice.
  base::Result<bool> exist(const std::vector<LogPosition>& positions);

  struct ClaimRequest {
    std::string worker, claim_id;
    int slot = 0;
    std::vector<std::string> pools;  // in the order in which they are tried, ≤ 8
  };
  enum class ClaimAnswer { kJob, kNone, kStale, kDrain, kUnknown };
  struct Claim {
    ClaimAnswer answer = ClaimAnswer::kNone;
    ClaimedJob job;         // kJob
    bool replayed = false;  // the claim_id was known: the same job again
  };
  base::Result<Claim> claim(const ClaimRequest& request);

  struct Beat {
    std::string worker, id;
    int64_t epoch = 0, sequence = 0;
    std::string phase, progress;
    Checkpoint checkpoint;
    std::vector<NewEvent> events;  // ≤ 128, together ≤ 32 KiB
  };
  enum class Verdict { kOk, kPause, kCancel, kLost };
  struct BeatReply {
    Verdict verdict = Verdict::kLost;
    int64_t expires_ms = 0;          // by the store's clock
    int64_t remaining_ms = 0;        // until then
    bool fresh = false;              // false: this beat_seq was known, its content was ignored
    std::string checkpoint_request;  // the id of a checkpoint that a user waits for; empty: none
  };
  base::Result<BeatReply> beat(const Beat& beat);

  struct Finish {
    std::string worker, id;
    int64_t epoch = 0;
    std::string
        outcome;  // success fail_retry fail_final crash oom disk_full release paused cancelled
    std::string result_uri, result_sha256, result;
    Checkpoint checkpoint;
    std::string why_code, why, why_details, progress;
    std::vector<NewEvent> events;
    int64_t trained_tokens = 0;  // of a success: what the tenant has used (usage_repository.h)
    // ±20 % on the back-off, chosen by the caller: 0.8–1.2.
    double backoff_factor = 1.0;
  };
  struct Finished {
    bool lost = false;  // somebody else owns the job, or nobody: nothing was changed
    bool replayed = false;
    std::string state;       // afterwards
    std::string pool, kind;  // these and the rest: only of the first answer
    double run_seconds = 0;
    std::string why_code;
    [[nodiscard]] bool terminal() const {
      return state == "SUCCEEDED" || state == "FAILED" || state == "CANCELLED";
    }
  };
  // BAD_STATE and BAD_ARGUMENT are faults of the worker: INVALID_ARGUMENT INVALID_FIELD.
  base::Result<Finished> finish(const Finish& finish);

 private:
  base::Result<Changed> change(std::string_view script, const std::string& tenant,
                               const std::string& id, const RequestKey& request,
                               std::vector<std::string> more);
  base::Result<Purge> purge(const std::string& op, const std::string& tenant, const std::string& id,
                            int64_t retention_ms, const RequestKey& request);
  Store& store_;
};

}  // namespace dex::store
