#include "scheduler/server/files.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include "scheduler/server/file_view.h"
#include "scheduler/server/page.h"
#include "services/data/plain_check.h"
#include "services/data_view/file_report.h"

namespace dex::server {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargestFindings = 8 << 20;

base::Status check_header(const v1::UploadFileRequest::Header& header, const data::Limits& limits) {
  const std::string& name = header.filename();
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != '/' && c != '\x7f';
  });
  if (name.empty() || name.size() > 255 || !plain) {
    return base::invalid_field("filename",
                               "must have 1 to 255 bytes without '/' and control characters");
  }
  if (!v1::FilePurpose_IsValid(header.purpose()) ||
      header.purpose() == v1::FILE_PURPOSE_FINE_TUNE_RESULTS) {
    return base::invalid_field(
        "purpose", "must be FILE_PURPOSE_FINE_TUNE or FILE_PURPOSE_EVALS for an upload");
  }
  if (!v1::FileFormat_IsValid(header.format())) {
    return base::invalid_field("format", "is unknown");
  }
  const double budget = header.skip_budget_ratio();
  if (!(budget >= 0 && budget <= 0.1)) {
    return base::Status(
               base::Code::kInvalidArgument, "VALUE_OUT_OF_RANGE",
               "skip_budget_ratio must be between 0 and 0.1, got " + std::to_string(budget))
        .with_violation("skip_budget_ratio", "must be between 0 and 0.1");
  }
  if (header.purpose() == v1::FILE_PURPOSE_EVALS) {
    const bool format = header.format() != v1::FILE_FORMAT_UNSPECIFIED;
    if (format || header.has_skip_budget_ratio()) {
      const std::string field = format ? "format" : "skip_budget_ratio";
      const std::string what = "has no effect with FILE_PURPOSE_EVALS: rows are read by the task";
      return base::bad_field("UNUSED_FIELD", field, what);
    }
  }
  if (header.size_bytes() < 0 || header.size_bytes() > limits.file_bytes) {
    return base::Status(base::Code::kInvalidArgument, "TOO_LARGE",
                        "size_bytes must be between 0 and " + std::to_string(limits.file_bytes) +
                            ", got " + std::to_string(header.size_bytes()))
        .with_violation("size_bytes", "must be between 0 and " + std::to_string(limits.file_bytes));
  }
  return {};
}

// What the client said of its bytes against what came.
base::Status check_promises(const v1::UploadFileRequest::Header& header,
                            const base::FileWriter& written) {
  const auto mismatch = [](const std::string& field, const std::string& said,
                           const std::string& got) {
    return base::Status(base::Code::kInvalidArgument, "CHECKSUM_MISMATCH",
                        field + ": the header says " + said + ", what came has " + got)
        .with_violation(field, "is not that of the bytes that came");
  };
  if (header.has_size_bytes() && header.size_bytes() != written.size_bytes()) {
    return mismatch("size_bytes", std::to_string(header.size_bytes()),
                    std::to_string(written.size_bytes()));
  }
  if (header.has_sha256() && header.sha256() != written.sha256()) {
    return mismatch("sha256", header.sha256().substr(0, 64), written.sha256());
  }
  return {};
}

// The check that a file's purpose asks for.
class UploadCheck {
 public:
  UploadCheck(const v1::UploadFileRequest::Header& header, const data::Limits& limits) {
    if (header.purpose() == v1::FILE_PURPOSE_EVALS) {
      plain_.emplace();
      return;
    }
    data::Validator::Options check;
    check.format = data_view::row_format(header.format());
    check.skip_budget_ratio = header.skip_budget_ratio();
    check.limits = limits;
    rows_.emplace(std::move(check));
  }
  void feed(std::string_view bytes) { plain_ ? plain_->feed(bytes) : rows_->feed(bytes); }
  data::Report finish() { return plain_ ? plain_->finish() : rows_->finish(); }

 private:
  std::optional<data::PlainCheck> plain_;
  std::optional<data::Validator> rows_;
};

// Removes a temporary on every way out.
class Temporary {
 public:
  explicit Temporary(fs::path path) : path_(std::move(path)) {}
  ~Temporary() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

 private:
  fs::path path_;
};

}  // namespace

base::Result<Answer<v1::File>> Files::upload(const auth::Principal& who,
                                             const v1::UploadFileRequest::Header& header,
                                             const Chunks& chunks) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kFilesWrite));
  DEX_RETURN_IF_ERROR(check_header(header, options_.limits));
  const fs::path path = layout_.upload(ids_.next() + ".part");
  DEX_ASSIGN_OR_RETURN(auto writer, base::FileWriter::create(path, 0600));
  const Temporary temporary(path);
  UploadCheck check(header, options_.limits);
  while (true) {
    DEX_ASSIGN_OR_RETURN(const auto chunk, chunks());
    if (!chunk) break;
    if (writer.size_bytes() + static_cast<int64_t>(chunk->size()) > options_.limits.file_bytes) {
      return base::Status(
                 base::Code::kInvalidArgument, "TOO_LARGE",
                 "the file has more than " + std::to_string(options_.limits.file_bytes) + " bytes")
          .with_violation("chunk", "the file is too large");
    }
    DEX_RETURN_IF_ERROR(writer.append(*chunk));
    check.feed(*chunk);
  }
  DEX_RETURN_IF_ERROR(writer.close());
  DEX_RETURN_IF_ERROR(check_promises(header, writer));
  const data::Report report = check.finish();
  DEX_RETURN_IF_ERROR(blobs_.place(path, writer.sha256()));
  auto kept = keep(who.tenant(), header, writer, report);
  if (!kept.ok()) {
    // Nobody names the bytes on this record's behalf; drop() keeps them if somebody else does.
    const auto named = files_.named(writer.sha256());
    if (named.ok() && !*named) (void)blobs_.drop(writer.sha256());
    return kept.status();
  }
  DEX_RETURN_IF_ERROR(blobs_.settle(path, writer.sha256()));
  DEX_ASSIGN_OR_RETURN(auto stored, files_.get(who.tenant(), kept->id));
  // Not LOST, whatever a recover() that looked a moment ago is about to take back: settle() has
  // just seen the bytes.
  stored.state = report.ready ? "READY" : "INVALID";
  return Answer<v1::File>{file_view(stored), kept->replayed};
}

base::Result<store::FileRepository::Put> Files::keep(const std::string& tenant,
                                                     const v1::UploadFileRequest::Header& header,
                                                     const base::FileWriter& written,
                                                     const data::Report& report) {
  auto body = header;  // the same header with other bytes is another request
  body.set_sha256(written.sha256());
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(body, ids_));
  store::FileRecord record;
  record.id = ids_.make("file-");
  record.filename = header.filename();
  record.purpose = header.purpose() == v1::FILE_PURPOSE_EVALS ? kEvalsPurpose : "fine-tune";
  record.sha256 = written.sha256();
  record.bytes = written.size_bytes();
  record.state = report.ready ? "READY" : "INVALID";
  v1::File info = data_view::report_view(report);
  info.set_skip_budget_ratio(header.skip_budget_ratio());
  info.set_format_given(header.format() != v1::FILE_FORMAT_UNSPECIFIED);
  record.info = info.SerializeAsString();

  v1::ListFindingsResponse findings;
  for (const auto& finding : report.findings)
    *findings.add_findings() = data_view::finding_view(finding);
  const fs::path findings_file = layout_.findings(record.id);
  DEX_RETURN_IF_ERROR(
      base::write_file_atomically(findings_file, findings.SerializeAsString(), 0600));
  const auto put = files_.put(tenant, key, record, options_.max_files);
  if (!put.ok() || put->replayed) {
    std::error_code ignored;
    fs::remove(findings_file, ignored);
  }
  return put;
}

base::Result<v1::File> Files::get(const auth::Principal& who, const v1::GetFileRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kFilesRead));
  DEX_RETURN_IF_ERROR(check_file_id(request.id()));
  if (ResultFiles::named(request.id())) return results_.get(who.tenant(), request.id());
  DEX_ASSIGN_OR_RETURN(const auto record, files_.get(who.tenant(), request.id()));
  return file_view(record);
}

base::Result<v1::ListFilesResponse> Files::list(const auth::Principal& who,
                                                const v1::ListFilesRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kFilesRead));
  if (request.purpose() == v1::FILE_PURPOSE_FINE_TUNE_RESULTS)
    return results_.list(who.tenant(), request);
  DEX_ASSIGN_OR_RETURN(const int wanted, page_size(request.page_size()));
  const auto created_ms = [&](const std::string& id) -> base::Result<int64_t> {
    DEX_RETURN_IF_ERROR(check_file_id(id));
    DEX_ASSIGN_OR_RETURN(const auto record, files_.get(who.tenant(), id));
    return record.created_ms;
  };
  DEX_ASSIGN_OR_RETURN(auto cursor, list_cursor(request.page_token(), request.after(), created_ms));
  v1::ListFilesResponse page;
  size_t bytes = 0;
  while (true) {
    DEX_ASSIGN_OR_RETURN(const auto records, files_.list(who.tenant(), cursor, kStorePage));
    for (const auto& record : records) {
      if (page.files_size() == wanted || bytes >= kListBytes) {
        page.set_next_page_token(page_token(cursor.before_ms, cursor.before_id));
        return page;
      }
      cursor = {record.created_ms, record.id};
      auto file = file_view(record);
      const bool any = request.state() == v1::FILE_STATE_UNSPECIFIED;
      if (!any && request.state() != file.state()) continue;
      const bool any_purpose = request.purpose() == v1::FILE_PURPOSE_UNSPECIFIED;
      if (!any_purpose && request.purpose() != file.purpose()) continue;
      bytes += file.ByteSizeLong();
      *page.add_files() = std::move(file);
    }
    if (static_cast<int>(records.size()) < kStorePage) return page;
  }
}

base::Result<v1::ListFindingsResponse> Files::findings(const auth::Principal& who,
                                                       const v1::ListFindingsRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kFilesRead));
  DEX_RETURN_IF_ERROR(check_file_id(request.id()));
  DEX_ASSIGN_OR_RETURN(const int wanted, page_size(request.page_size(), 100));
  if (request.offset() < 0) return base::invalid_field("offset", "must be ≥ 0");
  if (ResultFiles::named(request.id())) {  // nothing is wrong with what we made ourselves
    DEX_RETURN_IF_ERROR(results_.get(who.tenant(), request.id()).status());
    return v1::ListFindingsResponse();
  }
  DEX_RETURN_IF_ERROR(files_.get(who.tenant(), request.id()).status());
  DEX_ASSIGN_OR_RETURN(const std::string bytes,
                       base::read_file(layout_.findings(request.id()), kLargestFindings));
  v1::ListFindingsResponse all;
  if (!all.ParseFromString(bytes))
    return base::internal("the findings of " + request.id() + " can't be read");
  const std::set<std::string> codes(request.codes().begin(), request.codes().end());
  v1::ListFindingsResponse page;
  int64_t match = 0;
  for (auto& finding : *all.mutable_findings()) {
    if (!codes.empty() && !codes.contains(finding.code())) continue;
    if (match >= request.offset() && page.findings_size() < wanted)
      *page.add_findings() = std::move(finding);
    ++match;
  }
  page.set_total(match);
  return page;
}

base::Result<Answer<v1::DeleteFileResponse>> Files::remove(const auth::Principal& who,
                                                           const v1::DeleteFileRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kFilesWrite));
  DEX_RETURN_IF_ERROR(check_file_id(request.id()));
  if (const auto named = ResultFiles::named(request.id())) {
    DEX_RETURN_IF_ERROR(results_.get(who.tenant(), request.id()).status());
    return base::failed_precondition("FILE_IN_USE", "the file '" + request.id() +
                                                        "' is a result of the job " + named->job +
                                                        " and goes with it (DeleteFineTuningJob)");
  }
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, ids_));
  DEX_ASSIGN_OR_RETURN(const auto removed, files_.remove(who.tenant(), request.id(), key));
  std::error_code ignored;
  fs::remove(layout_.findings(request.id()), ignored);
  if (removed.last) DEX_RETURN_IF_ERROR(blobs_.drop(removed.sha256));
  v1::DeleteFileResponse response;
  response.set_id(request.id());
  return Answer<v1::DeleteFileResponse>{std::move(response), removed.replayed};
}

base::Status Files::download(const auth::Principal& who, const v1::DownloadFileRequest& request,
                             const std::function<bool(std::string)>& sink) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kFilesRead));
  DEX_RETURN_IF_ERROR(check_file_id(request.id()));
  if (ResultFiles::named(request.id())) {
    DEX_ASSIGN_OR_RETURN(const std::string bytes, results_.content(who.tenant(), request.id()));
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      if (!sink(bytes.substr(at, kPieceBytes)))
        return {base::Code::kCancelled, "CLIENT_CANCELLED", "nobody takes the file"};
    }
    return {};
  }
  DEX_ASSIGN_OR_RETURN(const auto record, files_.get(who.tenant(), request.id()));
  auto file = blobs_.open(record.sha256);
  const base::Status lost(base::Code::kDataLoss, "ARTIFACT_CORRUPT",
                          "the bytes of the file " + request.id() + " are gone or cut short");
  if (!file.ok()) return lost;
  int64_t sent = 0;
  std::string piece(kPieceBytes, '\0');
  while (file->read(piece.data(), kPieceBytes) || file->gcount() > 0) {
    sent += file->gcount();
    if (!sink(piece.substr(0, static_cast<size_t>(file->gcount())))) {
      return {base::Code::kCancelled, "CLIENT_CANCELLED", "nobody takes the file"};
    }
  }
  return sent == record.bytes ? base::Status() : lost;
}

}  // namespace dex::server
