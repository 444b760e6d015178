#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "scheduler/server/data_layout.h"
#include "scheduler/store/adapter_repository.h"
#include "scheduler/store/file_repository.h"
#include "scheduler/store/job_repository.h"
#include "services/base/status.h"

// What killed uploads and ended jobs leave in the data directory. Everything here may run while
// others work, and blocks on disk and store. What nobody asked to remove waits a day.
namespace dex::server {

inline constexpr int64_t kLeftoverAge_ms = int64_t{24} * 3600 * 1000;

// Temporaries of uploads that nobody has written to for a day, and findings as old whose file has
// no record. An upload that goes on writes all the time, and one that pauses for 30 s is ended
// (rpc::Room::Options::idle_upload). Answers how many files went.
base::Result<int64_t> remove_dead_uploads(const DataLayout& layout, store::FileRepository& files,
                                          int64_t now_ms);

// Those of a job's attempt directories ("attempt-<epoch>") that nobody needs (jobs.md §7): none
// while the job lives or within a day of its end; then all but the one that was published and the
// one with the last checkpoint. Pure.
std::vector<std::string> needless_attempts(const store::JobRecord& job,
                                           const std::vector<std::string>& attempts,
                                           int64_t now_ms);

// Removes them for all jobs; the whole folder of a preview (head_previews.h), a probe
// (memory_probes.h) or an export (adapter_jobs.h) that is over or was never queued; and of an
// import what was uploaded. Directories of other jobs that the store does not know are left alone.
// Ends early, and well, when `stop` is requested. Answers how many went.
base::Result<int64_t> remove_needless_attempts(const DataLayout& layout, store::JobRepository& jobs,
                                               int64_t now_ms, const std::stop_token& stop);

// Where the adapter lies that a job has published and that is still there: "jobs/…/final"; else
// empty.
base::Result<std::string> published_adapter(store::AdapterRepository& adapters,
                                            const store::JobRecord& job);

// Removes everything in the folder of a job whose record is about to go, at once. What lies at
// `kept` (of published_adapter; empty: nothing) stays, and beside it the job's spec: a job that
// goes on from the adapter needs it. May be repeated.
base::Status remove_job_artefacts(const DataLayout& layout, const store::JobRecord& job,
                                  const std::string& kept);

// What a job's owner deletes: record, events and files of a job that has ended, of any kind; a
// published adapter stays. Answers whether the request was known, and then did nothing.
// JOB_STATE_CONFLICT names the state of a job that lives. What is interrupted is finished by a
// repeat, or by Retention.
base::Result<bool> delete_ended_job(const DataLayout& layout, store::JobRepository& jobs,
                                    store::AdapterRepository& adapters, const store::JobRecord& job,
                                    const store::RequestKey& request);

}  // namespace dex::server
