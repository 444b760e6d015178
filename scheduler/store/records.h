#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

// What the store keeps, as plain values. States and words are those of jobs.md §2 and §3. Bytes
// that only the server understands (specs, progress, statistics) are opaque here.
namespace dex::store {

// What a mutating call is known by for StoreTimes::idempotency_ms (api.md §1): a repeat with the
// same id and digest changes nothing, one with another digest is refused. An empty id is not
// remembered.
struct RequestKey {
  std::string id;
  std::string digest;  // of what was asked for
};

struct Checkpoint {
  std::string uri;  // empty: none
  std::string manifest_sha256;
  int64_t step = 0;
  // Its state, from which a trainer goes on; only such a one answers whoever asked for a
  // checkpoint. False: what is kept of a training that is done while its gates are measured. Not
  // read back.
  bool of_training = true;
};

// A job to be. `files` must be READY files of the same tenant, `adapters` published ones; nobody
// can delete either while the job lives.
struct NewJob {
  std::string id;
  std::string kind = "finetune";
  std::string pool = "cpu";
  int priority = 4;  // 0–9
  int64_t delay_ms = 0;
  int max_fail = 2;         // failures that the trainer reports
  int max_crash = 2;        // deaths of process or worker
  std::string unique_name;  // empty: none; else at most one live job has it
  double cost_gpu_seconds = 0;
  int gpus = 1;             // resource units it holds while it runs
  int64_t deadline_ms = 0;  // from now; 0: none
  std::string adapter;      // id under which the result is published; empty: none
  bool hold = false;        // pause after validation
  std::string base_model;   // only workers that have it are given the job; empty: any worker
  std::string spec;         // opaque, ≤ 32 KiB
  std::vector<std::string> files;
  std::vector<std::string> adapters;  // that it goes on from or measures
  std::string queued_message = "The job is queued.";
};

struct JobRecord {
  std::string id, kind, tenant, pool, adapter;
  std::string state;         // DELAYED READY RUNNING CANCELLING PAUSED SUCCEEDED FAILED CANCELLED
  std::string want;          // run pause hold
  std::string pause_reason;  // USER AWAITING_START DISK_FULL
  std::string worker, phase;
  std::string progress;  // opaque
  int priority = 0, attempt = 0, failures = 0, crashes = 0, preempts = 0, ooms = 0;
  int64_t epoch = 0, revision = 0, sequence = 0;
  Checkpoint checkpoint;
  std::string result_uri, result_sha256, result;  // `result` is opaque
  std::string why_code, why, why_details;         // of the last failure; why_details is opaque
  std::vector<std::string> files;
  int64_t created_ms = 0, enter_ms = 0, started_ms = 0 /* first attempt */, finished_ms = 0,
          changed_ms = 0, deadline_ms = 0;
  // While a worker has it: when it was last heard of with it (or was given it), and when it loses
  // it.
  int64_t heartbeat_ms = 0, lease_ms = 0;
  int64_t attempt_ms = 0;       // when the last attempt started
  double cost_seconds = 0;      // as it was estimated (NewJob::cost_gpu_seconds)
  std::string spec;             // opaque; filled by get and list
  int64_t queue_position = 0;   // READY: 1 = next; else 0
  bool tenant_in_ring = false;  // READY: false means that a quota holds it back
  bool lacks_model = false;     // READY: workers are up in its pool, and none has its base model
  // As JobRepository::update set them; unset: as the spec has them.
  std::optional<std::string> metadata, name;  // `metadata` is opaque
  int64_t archived = 0;                       // events up to this sequence lie in the archive
  bool purging = false;                       // being deleted

  [[nodiscard]] bool terminal() const {
    return state == "SUCCEEDED" || state == "FAILED" || state == "CANCELLED";
  }
};

// An event that a worker reports.
struct NewEvent {
  int64_t at_ms = 0;  // 0: now
  std::string level;  // INFO WARN ERROR
  std::string type, message;
  std::string data;  // opaque
};

// One entry of a job's log.
struct LogEntry {
  int64_t sequence = 0, at_ms = 0;
  std::string level, type, message, data;
  int attempt = 0;
};

// A claim that was granted; a replayed one has the same values.
struct ClaimedJob {
  std::string id, spec, kind, tenant, pool, adapter, want;
  int64_t epoch = 0;
  Checkpoint checkpoint;
  int attempt = 0, ooms = 0;
  std::vector<std::string> files;
  int64_t waited_ms = 0;
};

struct FileRecord {
  std::string id, tenant, filename, purpose, sha256, format;
  std::string state;  // PROCESSING READY INVALID LOST (its bytes are gone from the disk)
  int64_t bytes = 0, created_ms = 0;
  std::string info;                // opaque: statistics and the first findings
  std::vector<std::string> users;  // live jobs that name it, at most 20; filled by get
};

struct AdapterRecord {
  std::string id, tenant, job, uri, sha256;
  std::string info;     // opaque: the attempt's result
  std::string desired;  // none, loaded
  std::string tier;     // DEVICE, HOST
  bool pinned = false, disabled = false;
  std::vector<std::string> aliases;  // that point to it, sorted
  int64_t created_ms = 0, revision = 0;
};

// A name of a tenant's for one of its adapters.
struct AliasRecord {
  std::string name, tenant;
  std::string adapter;  // id, where it points
  struct Target {
    std::string adapter;
    int64_t set_ms = 0;
    bool gates_overridden = false;
  };
  std::vector<Target> targets;  // the last 20, newest first
  int64_t created_ms = 0;
  int64_t revision = 0;  // of the routes in which it moved; no two states of a name share one
};

struct WorkerRecord {
  std::string id, host, version;
  std::string state;  // up draining gone
  std::vector<std::string> pools;
  int slots = 0;
  std::vector<std::string> models;  // base models it can run jobs of; empty: any job
  std::string info;                 // opaque: how it registered
  std::string live;                 // opaque: what its engines hold
  // How far its clock was ahead of its scheduler's at its last heartbeat, if it told its time.
  std::optional<int64_t> clock_ahead_ms;
};

// A page of a list and where the next one starts.
struct Cursor {
  int64_t before_ms = -1;  // -1: from the newest
  std::string before_id;
};

}  // namespace dex::store
