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
  // repeat); NOT_FOUND RESOURCE_NOT_FOUND (a file); FAILED_PRECONDITION FILE_NOT_READY,
  // FILE_INVALID; RESOURCE_EXHAUSTED QUOTA_EXCEEDED.
  base::Result<Submitted> submit(const std::string& tenant, const Submission& submission);

  // RESOURCE_NOT_FOUND for a missing job and for another tenant's alike, here and below.
  base::Result<JobRecord> get(const std::string& tenant, const std::string& id);
  // Newest first, at most 100.
  base::Result<std::vector<JobRecord>> list(const std::string& tenant, const Cursor& cursor,
                                            int count);
  // Ends a waiting job at once, orders a running one to stop; OK also for one that is CANCELLED or
  // CANCELLING. FAILED_PRECONDITION JOB_STATE_CONFLICT names the state of a job that ended
  // otherwise.
  struct Cancelled {
    std::string state;      // stored, afterwards; of a replay: empty
    bool replayed = false;  // `request` was known: nothing was done, whatever the job is now
  };
  base::Result<Cancelled> cancel(const std::string& tenant, const std::string& id,
                                 const std::string& why, const RequestKey& request = {});
  // Both return the stored state afterwards. JOB_STATE_CONFLICT as above.
  base::Result<std::string> pause(const std::string& tenant, const std::string& id);
  base::Result<std::string> resume(const std::string& tenant, const std::string& id);

  // Entries with sequence > after, oldest first. Ask only for a job that get() showed.
  base::Result<std::vector<LogEntry>> log(const std::string& id, int64_t after, int count);
  struct LogPosition {
    std::string id;
    int64_t after = 0;
  };
  // The same for many jobs in one round trip; only jobs with news are in the answer.
  base::Result<std::vector<std::pair<std::string, std::vector<LogEntry>>>> logs(
      const std::vector<LogPosition>& positions, int count);

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
    int64_t expires_ms = 0;    // by the store's clock
    int64_t remaining_ms = 0;  // until then
    bool fresh = false;        // false: this beat_seq was known, its content was ignored
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
  base::Result<std::string> change(std::string_view script, const std::string& tenant,
                                   const std::string& id, std::vector<std::string> more);
  Store& store_;
};

}  // namespace dex::store
