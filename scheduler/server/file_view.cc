#include "scheduler/server/file_view.h"

#include "scheduler/server/times.h"
#include "services/base/ids.h"

namespace dex::server {

v1::File file_view(const store::FileRecord& record) {
  v1::File file;
  if (!file.ParseFromString(record.info)) file.Clear();
  file.set_id(record.id);
  file.set_filename(record.filename);
  file.set_purpose(record.purpose == kEvalsPurpose ? v1::FILE_PURPOSE_EVALS
                                                   : v1::FILE_PURPOSE_FINE_TUNE);
  file.set_bytes(record.bytes);
  file.set_sha256(record.sha256);
  const bool lost = record.state == "LOST";
  file.set_state(record.state == "READY"             ? v1::FILE_STATE_READY
                 : lost || record.state == "INVALID" ? v1::FILE_STATE_INVALID
                                                     : v1::FILE_STATE_PROCESSING);
  if (lost) {
    file.clear_findings();  // what was odd in bytes that are gone helps nobody
    file.clear_finding_counts();
    auto& finding = *file.add_findings();
    finding.set_code("bytes_lost");
    finding.set_severity(v1::Finding::SEVERITY_ERROR);
    finding.set_message("the file's bytes are gone from the server's disk");
    finding.set_hint("upload the file again");
    (*file.mutable_finding_counts())["bytes_lost"] = 1;
  }
  *file.mutable_create_time() = timestamp(record.created_ms);
  return file;
}

base::Status check_file_id(const std::string& id) {
  if (base::is_id(id, "file-")) return {};
  return base::not_found("RESOURCE_NOT_FOUND", "There is no file '" + id.substr(0, 64) + "'.")
      .with_metadata("resource_type", "file")
      .with_metadata("resource_name", id.substr(0, 64));
}

base::Status require_ready(const store::FileRecord& record, const std::string& field) {
  if (record.state == "READY") return {};
  const bool lost = record.state == "LOST";
  const bool invalid = lost || record.state == "INVALID";
  const std::string text = lost      ? "has lost its bytes on the server; upload it again"
                           : invalid ? "has faults that ListFindings names"
                                     : "is still being checked";
  return base::failed_precondition(invalid ? "FILE_INVALID" : "FILE_NOT_READY",
                                   field + ": the file '" + record.id + "' " + text)
      .with_violation(field, text);
}

}  // namespace dex::server
