#include "scheduler/server/result_files.h"

#include <algorithm>

#include "dex/v1/finetuning.pb.h"
#include "scheduler/server/job_id.h"
#include "scheduler/server/metrics_table.h"
#include "scheduler/server/page.h"
#include "scheduler/server/times.h"
#include "services/base/ids.h"
#include "services/base/sha256.h"

namespace dex::server {

namespace {

// Each is made of its job's events while it is listed.
constexpr int kMostInAPage = 20;
constexpr std::string_view kFilePrefix = "file-", kJobPrefix = "ftjob-";

base::Status no_such_file(const std::string& id) {
  return base::not_found("RESOURCE_NOT_FOUND", "There is no file '" + id.substr(0, 64) + "'.")
      .with_metadata("resource_type", "file")
      .with_metadata("resource_name", id.substr(0, 64));
}

}  // namespace

std::string ResultFiles::id(const std::string& job, Kind kind) {
  return std::string(kFilePrefix) + (kind == Kind::kCsv ? '1' : '2') +
         job.substr(kJobPrefix.size() + 1);
}

std::optional<ResultFiles::Named> ResultFiles::named(const std::string& id) {
  if (!base::is_id(id, kFilePrefix)) return std::nullopt;
  const char mark = id[kFilePrefix.size()];
  if (mark != '1' && mark != '2') return std::nullopt;
  return Named{std::string(kJobPrefix) + '0' + id.substr(kFilePrefix.size() + 1),
               mark == '1' ? Kind::kCsv : Kind::kJsonl};
}

std::vector<std::string> ResultFiles::of(const store::JobRecord& job) {
  v1::Progress progress;
  const bool trained =
      job.state == "SUCCEEDED" || (progress.ParseFromString(job.progress) && progress.step() > 0);
  if (job.kind != kFineTuningKind || !job.terminal() || !trained) return {};
  if (!base::is_id(job.id, kJobPrefix) || job.id[kJobPrefix.size()] != '0') return {};
  return {id(job.id, Kind::kCsv), id(job.id, Kind::kJsonl)};
}

base::Result<store::JobRecord> ResultFiles::job_of(const std::string& tenant,
                                                   const std::string& id) {
  const auto asked = named(id);
  if (!asked) return no_such_file(id);
  auto job = jobs_.get(tenant, asked->job);
  if (!job.ok() && job.status().code() != base::Code::kNotFound) return job.status();
  if (!job.ok() || of(*job).empty()) return no_such_file(id);
  return job;
}

base::Result<std::string> ResultFiles::make(const store::JobRecord& job, Kind kind) {
  constexpr int kAtOnce = 1000;
  MetricsTable table;
  for (int64_t after = 0;;) {
    DEX_ASSIGN_OR_RETURN(const auto events, events_.read(job.tenant, job.id, after, kAtOnce));
    for (const auto& event : events) table.add(event);
    if (static_cast<int>(events.size()) < kAtOnce) break;
    after = events.back().sequence();
  }
  return kind == Kind::kCsv ? table.csv() : table.jsonl();
}

base::Result<v1::File> ResultFiles::view(const store::JobRecord& job, const std::string& id) {
  const Kind kind = named(id)->kind;
  DEX_ASSIGN_OR_RETURN(const std::string bytes, make(job, kind));
  v1::File file;
  file.set_id(id);
  file.set_filename(job.id + (kind == Kind::kCsv ? "-metrics.csv" : "-metrics.jsonl"));
  file.set_purpose(v1::FILE_PURPOSE_FINE_TUNE_RESULTS);
  file.set_bytes(static_cast<int64_t>(bytes.size()));
  file.set_sha256(base::sha256_hex(bytes));
  file.set_state(v1::FILE_STATE_READY);
  *file.mutable_create_time() = timestamp(job.finished_ms);
  return file;
}

base::Result<v1::File> ResultFiles::get(const std::string& tenant, const std::string& id) {
  DEX_ASSIGN_OR_RETURN(const auto job, job_of(tenant, id));
  return view(job, id);
}

base::Result<std::string> ResultFiles::content(const std::string& tenant, const std::string& id) {
  DEX_ASSIGN_OR_RETURN(const auto job, job_of(tenant, id));
  return make(job, named(id)->kind);
}

// A place in the list is the id of a file; the second of a job's two may begin a page.
base::Result<v1::ListFilesResponse> ResultFiles::list(const std::string& tenant,
                                                      const v1::ListFilesRequest& request) {
  DEX_ASSIGN_OR_RETURN(const int asked, page_size(request.page_size()));
  const int wanted = std::min(asked, kMostInAPage);
  const auto created_ms = [&](const std::string& id) -> base::Result<int64_t> {
    DEX_ASSIGN_OR_RETURN(const auto job, job_of(tenant, id));
    return job.created_ms;
  };
  DEX_ASSIGN_OR_RETURN(auto place, list_cursor(request.page_token(), request.after(), created_ms));
  v1::ListFilesResponse page;
  const bool none =
      request.state() != v1::FILE_STATE_UNSPECIFIED && request.state() != v1::FILE_STATE_READY;
  if (none) return page;
  // False: the page is full, and goes on behind the last place.
  const auto add = [&](const store::JobRecord& job, const std::string& id) -> base::Result<bool> {
    if (page.files_size() == wanted) {
      page.set_next_page_token(page_token(place.before_ms, place.before_id));
      return false;
    }
    DEX_ASSIGN_OR_RETURN(*page.add_files(), view(job, id));
    place = {job.created_ms, id};
    return true;
  };
  store::Cursor jobs = place;
  if (const auto last = named(place.before_id)) {
    jobs.before_id = last->job;
    const auto job = jobs_.get(tenant, last->job);
    if (job.ok() && last->kind == Kind::kCsv && !of(*job).empty()) {
      DEX_RETURN_IF_ERROR(add(*job, id(job->id, Kind::kJsonl)).status());
    }
  }
  while (true) {
    DEX_ASSIGN_OR_RETURN(const auto records, jobs_.list(tenant, jobs, kStorePage));
    for (const auto& record : records) {
      jobs = {record.created_ms, record.id};
      for (const std::string& id : of(record)) {
        DEX_ASSIGN_OR_RETURN(const bool room, add(record, id));
        if (!room) return page;
      }
    }
    if (static_cast<int>(records.size()) < kStorePage) return page;
  }
}

}  // namespace dex::server
