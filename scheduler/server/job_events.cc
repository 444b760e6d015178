#include "scheduler/server/job_events.h"

#include <google/protobuf/util/json_util.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "scheduler/server/job_view.h"
#include "services/base/files.h"

namespace dex::server {

namespace {

namespace fs = std::filesystem;

constexpr int kArchivePage = 1000;
constexpr int64_t kLargestArchive = int64_t{512} << 20;  // 8000 events as large as they may be

// Of a line as archive() writes it; −1: not such a line. A string inside can't look like the key:
// its quotes are escaped.
int64_t sequence_in(std::string_view line) {
  constexpr std::string_view kKey = "\"sequence\":\"";
  const size_t at = line.find(kKey);
  if (at == std::string_view::npos) return -1;
  return std::strtoll(line.data() + at + kKey.size(), nullptr, 10);  // ends at the quote
}

// The sequence of the last whole line.
int64_t last_sequence(std::string_view text) {
  if (text.empty()) return 0;
  const size_t before = text.rfind('\n', text.size() - 2);
  return std::max<int64_t>(
      0, sequence_in(text.substr(before == std::string_view::npos ? 0 : before + 1)));
}

base::Result<std::string> line_of(const v1::FineTuningEvent& event) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(event, &text, options).ok())
    return base::internal("the event " + event.id() + " can't be written as JSON");
  return text + "\n";
}

base::Result<std::vector<v1::FineTuningEvent>> read_archive(const fs::path& path, int64_t after,
                                                            int count) {
  std::ifstream file(path);
  if (!file) return base::not_found("FILE_MISSING", path.string() + " can't be read");
  std::vector<v1::FineTuningEvent> events;
  std::string line;
  while (static_cast<int>(events.size()) < count && std::getline(file, line)) {
    if (sequence_in(line) <= after) continue;
    if (!google::protobuf::util::JsonStringToMessage(line, &events.emplace_back()).ok()) {
      return base::Status(base::Code::kDataLoss, "ARTIFACT_CORRUPT",
                          "The archive of the job's events has a line that is none.");
    }
  }
  return events;
}

void append_views(const std::string& id, const std::vector<store::LogEntry>& entries,
                  std::vector<v1::FineTuningEvent>& events) {
  for (const auto& entry : entries) events.push_back(event_view(id, entry));
}

}  // namespace

base::Result<std::vector<v1::FineTuningEvent>> JobEvents::read(const std::string& tenant,
                                                               const std::string& id, int64_t after,
                                                               int count) {
  DEX_ASSIGN_OR_RETURN(const auto entries, jobs_.log(id, after, count));
  std::vector<v1::FineTuningEvent> events;
  if (entries.empty() || entries.front().sequence > after + 1) {
    // A hole, or the end: the archive has what lies in a hole, unless the log was too long for all.
    DEX_ASSIGN_OR_RETURN(const auto job, jobs_.get(tenant, id));
    if (job.archived > after) {
      auto archived = read_archive(layout_.events(tenant, id), after, count);
      if (archived.ok()) {
        events = std::move(archived).value();
        const int left = count - static_cast<int>(events.size());
        if (left == 0) return events;
        const int64_t last = events.empty() ? after : events.back().sequence();
        DEX_ASSIGN_OR_RETURN(const auto rest, jobs_.log(id, last, left));
        append_views(id, rest, events);
        return events;
      }
      if (archived.status().code() != base::Code::kNotFound) return archived.status();
      spdlog::error("job {}: the archive of its events is gone: {}", id,
                    archived.status().message());
    }
  }
  append_views(id, entries, events);
  return events;
}

base::Result<std::vector<v1::FineTuningEvent>> JobEvents::read_back(const std::string& tenant,
                                                                    const std::string& id,
                                                                    int64_t before, int count) {
  DEX_ASSIGN_OR_RETURN(const auto entries, jobs_.log_back(id, before, count));
  std::vector<v1::FineTuningEvent> events;
  append_views(id, entries, events);
  if (static_cast<int>(events.size()) == count) return events;
  // The log has no more: it is short, or what came earlier is in the archive.
  DEX_ASSIGN_OR_RETURN(const auto job, jobs_.get(tenant, id));
  if (job.archived == 0) return events;
  std::deque<v1::FineTuningEvent> last;
  for (int64_t after = 0;;) {
    DEX_ASSIGN_OR_RETURN(auto page, read(tenant, id, after, kArchivePage));
    const bool more = static_cast<int>(page.size()) == kArchivePage;
    if (more) after = page.back().sequence();
    for (auto& event : page) {
      if (before > 0 && event.sequence() >= before) break;
      last.push_back(std::move(event));
      if (static_cast<int>(last.size()) > count) last.pop_front();
    }
    if (!more || (before > 0 && after >= before)) break;
  }
  events.assign(std::make_move_iterator(last.rbegin()), std::make_move_iterator(last.rend()));
  return events;
}

base::Status JobEvents::archive(const store::JobRepository::FinishedJob& job) {
  const fs::path path = layout_.events(job.tenant, job.id);
  std::error_code error;
  std::string text;
  if (fs::exists(path, error)) {  // a job that was redriven: what came since is added
    DEX_ASSIGN_OR_RETURN(text, base::read_file(path, kLargestArchive));
  }
  int64_t last = last_sequence(text);
  while (true) {
    DEX_ASSIGN_OR_RETURN(const auto entries, jobs_.log(job.id, last, kArchivePage));
    for (const auto& entry : entries) {
      DEX_ASSIGN_OR_RETURN(const std::string line, line_of(event_view(job.id, entry)));
      text += line;
      last = entry.sequence;
    }
    if (static_cast<int>(entries.size()) < kArchivePage) break;
  }
  DEX_RETURN_IF_ERROR(base::make_directories(path.parent_path()));
  DEX_RETURN_IF_ERROR(base::write_file_atomically(path, text));
  DEX_ASSIGN_OR_RETURN(const bool kept, jobs_.archived(job.id, std::max(last, job.sequence)));
  if (kept) return {};
  // It was deleted meanwhile, perhaps before this made its folder again.
  DEX_RETURN_IF_ERROR(base::remove_tree(path));
  fs::remove(path.parent_path(), error);  // fails, and well, while an adapter is in it
  return {};
}

}  // namespace dex::server
