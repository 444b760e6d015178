#include "scheduler/server/leftovers.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "scheduler/server/job_id.h"
#include "scheduler/store/refusals.h"
#include "services/base/files.h"
#include "services/base/ids.h"

namespace dex::server {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kAttempt = "attempt-";
// What the ids of every kind of job begin with (job_id.h).
constexpr const char* kJobPrefixes[] = {"ftjob-", "eval-",       "heads-",
                                        "probe-", kImportPrefix, kExportPrefix};

// The entries of a folder, empty when it can't be read.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    found.push_back(it->path());
  return found;
}

// A regular file that was last written to a day before `now_ms` or earlier.
bool is_old_file(const fs::path& path, int64_t now_ms) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  const int64_t written_ms = info.st_mtim.tv_sec * 1000 + info.st_mtim.tv_nsec / 1'000'000;
  return written_ms + kLeftoverAge_ms <= now_ms;
}

bool is_attempt(const std::string& name) {
  return name.starts_with(kAttempt) && name.size() > kAttempt.size() &&
         name.find_first_not_of("0123456789", kAttempt.size()) == std::string::npos;
}

// The attempt directories of one job: names without the path.
std::vector<std::string> attempts_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& path : entries(folder)) {
    std::error_code gone;
    const std::string name = path.filename().string();
    if (is_attempt(name) && fs::symlink_status(path, gone).type() == fs::file_type::directory)
      names.push_back(name);
  }
  return names;
}

// A day after it was made: whether the job has ended, or was never queued.
base::Result<bool> is_over(store::JobRepository& jobs, const fs::path& tenant,
                           const std::string& id, int64_t now_ms) {
  const std::string ulid = id.substr(id.find('-') + 1);
  if (base::ulid_time_ms(ulid) + kLeftoverAge_ms > now_ms) return false;
  const auto job = jobs.get(tenant.filename().string(), id);
  if (job.status().code() == base::Code::kNotFound) return true;
  DEX_RETURN_IF_ERROR(job.status());
  return job->terminal();
}

}  // namespace

base::Result<int64_t> remove_dead_uploads(const DataLayout& layout, store::FileRepository& files,
                                          int64_t now_ms) {
  int64_t removed = 0;
  std::error_code ignored;
  for (const fs::path& path : entries(layout.all_uploads())) {
    if (path.extension() == ".part" && is_old_file(path, now_ms))
      removed += fs::remove(path, ignored) ? 1 : 0;
  }
  for (const fs::path& path : entries(layout.all_findings())) {
    // "<file>.pb", or "<file>.pb.tmp" while it is written.
    const std::string name = path.filename().string();
    const std::string id = name.substr(0, name.find('.'));
    if (!base::is_id(id, "file-") || !is_old_file(path, now_ms)) continue;
    DEX_ASSIGN_OR_RETURN(const bool known, files.exists(id));
    if (!known) removed += fs::remove(path, ignored) ? 1 : 0;
  }
  return removed;
}

std::vector<std::string> needless_attempts(const store::JobRecord& job,
                                           const std::vector<std::string>& attempts,
                                           int64_t now_ms) {
  if (!job.terminal() || job.finished_ms <= 0 || job.finished_ms + kLeftoverAge_ms > now_ms)
    return {};
  std::vector<std::string> needless;
  for (const std::string& attempt : attempts) {
    const std::string inside = "jobs/" + job.tenant + "/" + job.id + "/" + attempt + "/";
    if (!job.result_uri.starts_with(inside) && !job.checkpoint.uri.starts_with(inside))
      needless.push_back(attempt);
  }
  return needless;
}

base::Result<std::string> published_adapter(store::AdapterRepository& adapters,
                                            const store::JobRecord& job) {
  if (job.adapter.empty() || job.state != "SUCCEEDED") return std::string();
  const auto adapter = adapters.get(job.tenant, job.adapter);
  if (adapter.ok()) return adapter->uri;
  if (adapter.status().code() == base::Code::kNotFound) return std::string();
  return adapter.status();
}

base::Status remove_job_artefacts(const DataLayout& layout, const store::JobRecord& job,
                                  const std::string& kept) {
  const bool known =
      std::any_of(std::begin(kJobPrefixes), std::end(kJobPrefixes),
                  [&job](const char* prefix) { return base::is_id(job.id, prefix); });
  if (!known) return base::internal("'" + job.id + "' is no job's id: nothing is removed");
  DEX_ASSIGN_OR_RETURN(const fs::path folder, layout.absolute(DataLayout::job(job.tenant, job.id)));
  fs::path adapter;
  if (!kept.empty()) {
    DEX_ASSIGN_OR_RETURN(adapter, layout.absolute(kept));
  }
  std::error_code error;
  const bool there = !kept.empty() && fs::exists(adapter, error);
  // A disk that can't say is no reason to remove what somebody may serve.
  if (error) return base::internal("the adapter of " + job.id + ": " + error.message());
  if (!there) return base::remove_tree(folder);
  if (adapter.parent_path().parent_path() != folder)
    return base::internal("'" + kept + "' is no adapter of " + job.id + ": nothing is removed");
  const fs::path spec = layout.kept_spec(job.tenant, job.id);
  for (const fs::path& path : entries(folder)) {
    if (path == spec) continue;
    if (path != adapter.parent_path()) {
      DEX_RETURN_IF_ERROR(base::remove_tree(path));
      continue;
    }
    for (const fs::path& part : entries(path)) {
      if (part != adapter) DEX_RETURN_IF_ERROR(base::remove_tree(part));
    }
  }
  // Last: on a full disk there is room for it only now. The record goes after this, so the spec is
  // always to be had.
  DEX_RETURN_IF_ERROR(base::write_file_atomically(spec, job.spec));
  // Whoever deleted the adapter meanwhile may not have seen the spec, and left the rest.
  const bool still = fs::exists(adapter, error);
  return still || error ? base::Status() : base::remove_tree(folder);
}

base::Result<bool> delete_ended_job(const DataLayout& layout, store::JobRepository& jobs,
                                    store::AdapterRepository& adapters, const store::JobRecord& job,
                                    const store::RequestKey& request) {
  using Purge = store::JobRepository::Purge;
  if (!job.terminal()) return store::state_conflict(job.id, job.state);
  const auto marked = jobs.purge_mark(job.tenant, job.id, 0, request);
  DEX_RETURN_IF_ERROR(marked.status());
  if (*marked == Purge::kReplayed) return true;
  DEX_ASSIGN_OR_RETURN(const std::string kept, published_adapter(adapters, job));
  DEX_RETURN_IF_ERROR(remove_job_artefacts(layout, job, kept));
  const auto committed = jobs.purge_commit(job.tenant, job.id, request);
  // Retention may have finished what it found marked.
  if (!committed.ok() && committed.status().code() != base::Code::kNotFound)
    return committed.status();
  return committed.ok() && *committed == Purge::kReplayed;
}

base::Result<int64_t> remove_needless_attempts(const DataLayout& layout, store::JobRepository& jobs,
                                               int64_t now_ms, const std::stop_token& stop) {
  int64_t removed = 0;
  std::error_code ignored;
  for (const fs::path& tenant : entries(layout.all_jobs())) {
    for (const fs::path& folder : entries(tenant)) {
      if (stop.stop_requested()) return removed;
      const std::string id = folder.filename().string();
      const bool imported = base::is_id(id, kImportPrefix);
      // Nobody asks for a preview or a probe again, and an export is kept for a day.
      const bool passes =
          base::is_id(id, "heads-") || base::is_id(id, "probe-") || base::is_id(id, kExportPrefix);
      if (passes || imported) {
        DEX_ASSIGN_OR_RETURN(const bool over, is_over(jobs, tenant, id, now_ms));
        // Of an import the adapter stays, if it became one, and what was uploaded goes.
        const fs::path part = passes || attempts_in(folder).empty() ? folder : folder / "upload";
        const bool there = over && fs::exists(part, ignored);
        if (there) DEX_RETURN_IF_ERROR(base::remove_tree(part));
        removed += there ? 1 : 0;
        if (passes) continue;
      }
      const bool is_job = imported || base::is_id(id, "ftjob-") || base::is_id(id, "eval-");
      const auto attempts = is_job ? attempts_in(folder) : std::vector<std::string>();
      if (attempts.empty()) continue;
      const auto job = jobs.get(tenant.filename().string(), id);
      if (job.status().code() == base::Code::kNotFound) continue;
      DEX_RETURN_IF_ERROR(job.status());
      for (const std::string& attempt : needless_attempts(*job, attempts, now_ms)) {
        DEX_RETURN_IF_ERROR(base::remove_tree(folder / attempt));
        ++removed;
      }
    }
  }
  return removed;
}

}  // namespace dex::server
