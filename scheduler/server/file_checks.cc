#include "scheduler/server/file_checks.h"

#include <memory>

#include <optional>
#include <set>

#include "scheduler/core/warm_start.h"
#include "scheduler/server/file_encoding.h"
#include "scheduler/server/file_view.h"
#include "scheduler/server/page.h"
#include "services/data_view/file_report.h"

namespace dex::server {

namespace {

constexpr int64_t kProgressBytes = 4 << 20;
constexpr uint32_t kFindings = 1000, kMostFindings = 10'000;
constexpr uint32_t kRows = 10, kMostRows = 50;
constexpr size_t kReplyBytes = 2 << 20;  // a row of at most 1.5 MiB may follow

base::Status nobody_listens() {
  return {base::Code::kCancelled, "CLIENT_CANCELLED", "nobody takes the report"};
}

base::Status out_of_range(const std::string& field, const std::string& what) {
  return base::Status(base::Code::kInvalidArgument, "VALUE_OUT_OF_RANGE", field + " " + what)
      .with_violation(field, what);
}

base::Status check(const v1::ValidateFileRequest& request) {
  if (request.max_findings() > kMostFindings) {
    return out_of_range("max_findings", "must be at most " + std::to_string(kMostFindings) +
                                            ", got " + std::to_string(request.max_findings()));
  }
  if (request.has_encoding() && !request.has_model()) {
    return base::bad_field("UNUSED_FIELD", "encoding",
                           "has no effect without a model, whose tokenizer counts the tokens");
  }
  return {};
}

base::Status check(const v1::PreviewFileRequest& request) {
  if (request.limit() > kMostRows) {
    return out_of_range("limit", "must be at most " + std::to_string(kMostRows) + ", got " +
                                     std::to_string(request.limit()));
  }
  if (request.offset() < 0) return base::invalid_field("offset", "must be ≥ 0");
  if (request.lines_size() > static_cast<int>(kMostRows)) {
    return out_of_range("lines", "may name " + std::to_string(kMostRows) + " lines at most, got " +
                                     std::to_string(request.lines_size()));
  }
  for (const int64_t line : request.lines())
    if (line < 1) return out_of_range("lines", "count from 1, got " + std::to_string(line));
  if (request.lines_size() > 0 && request.offset() > 0)
    return base::bad_field("CONFLICTING_FIELDS", "offset", "can't be used with lines");
  return {};
}

}  // namespace

struct FileChecks::Encoded {
  std::shared_ptr<const text::ModelText> text;
  v1::RowEncoding encoding;
  text::RowEncoder encoder;
};

base::Result<v1::File> FileChecks::readable(const auth::Principal& who, const std::string& id) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kFilesRead));
  DEX_RETURN_IF_ERROR(check_file_id(id));
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.files.get(who.tenant(), id));
  // INVALID is what there is most to say of; one whose bytes are gone or never came has nothing.
  if (record.state != "INVALID") DEX_RETURN_IF_ERROR(require_ready(record, "file"));
  if (record.purpose == "fine-tune") return file_view(record);
  const std::string text =
      "holds no rows to train on: it was not uploaded with "
      "FILE_PURPOSE_FINE_TUNE";
  return base::failed_precondition("FILE_INVALID", "file: the file '" + id + "' " + text)
      .with_violation("file", text);
}

base::Result<FileChecks::Encoded> FileChecks::encoded(const std::string& model,
                                                      const v1::RowEncoding& asked,
                                                      const v1::File& file) {
  DEX_ASSIGN_OR_RETURN(const v1::Model base, parts_.models.find(core::base_model_of(model)));
  DEX_ASSIGN_OR_RETURN(const v1::RowEncoding encoding, resolve_encoding(asked, base, file));
  DEX_ASSIGN_OR_RETURN(auto text, parts_.texts.get(base.name()));
  const text::RowEncoder encoder(text->tokenizer.get(), text->chat_template.get(),
                                 encoder_options(encoding, base));
  return Encoded{std::move(text), encoding, encoder};
}

base::Status FileChecks::read(const v1::File& file,
                              const std::function<base::Result<bool>(std::string_view)>& take) {
  auto bytes = parts_.blobs.open(file.sha256());
  const base::Status lost(base::Code::kDataLoss, "ARTIFACT_CORRUPT",
                          "the bytes of the file " + file.id() + " are gone or cut short");
  if (!bytes.ok()) return lost;
  std::string piece(kPieceBytes, '\0');
  int64_t sum = 0;
  while (bytes->read(piece.data(), kPieceBytes) || bytes->gcount() > 0) {
    sum += bytes->gcount();
    DEX_ASSIGN_OR_RETURN(const bool more,
                         take({piece.data(), static_cast<size_t>(bytes->gcount())}));
    if (!more) return {};
  }
  return sum == file.bytes() ? base::Status() : lost;
}

base::Status FileChecks::validate(const auth::Principal& who,
                                  const v1::ValidateFileRequest& request,
                                  const std::function<bool(v1::ValidateFileResponse)>& sink) {
  DEX_RETURN_IF_ERROR(check(request));
  DEX_ASSIGN_OR_RETURN(const v1::File file, readable(who, request.file()));
  std::optional<Encoded> encoded;
  if (request.has_model()) {
    DEX_ASSIGN_OR_RETURN(encoded, this->encoded(request.model(), request.encoding(), file));
  }
  data::FileCheck::Options options;
  if (file.format_given()) options.reading.format = data_view::row_format(file.format());
  options.reading.skip_budget_ratio = file.skip_budget_ratio();
  options.reading.max_findings = request.max_findings() > 0 ? request.max_findings() : kFindings;
  if (encoded) {
    options.encoder = &encoded->encoder;
    options.tokenizer = encoded->text->tokenizer.get();
    options.max_seq_length = static_cast<int32_t>(encoded->encoding.max_seq_length());
    options.preset = encoded->encoding.preset();
  }
  data::FileCheck checked(std::move(options));
  int64_t read_bytes = 0, told_bytes = 0;
  const auto take = [&](std::string_view piece) -> base::Result<bool> {
    checked.feed(piece);
    read_bytes += static_cast<int64_t>(piece.size());
    if (read_bytes - told_bytes < kProgressBytes) return true;
    told_bytes = read_bytes;
    v1::ValidateFileResponse response;
    response.mutable_progress()->set_bytes(read_bytes);
    response.mutable_progress()->set_total_bytes(file.bytes());
    response.mutable_progress()->set_rows(checked.rows());
    if (!sink(std::move(response))) return nobody_listens();
    return true;
  };
  DEX_RETURN_IF_ERROR(read(file, take));
  const data::FileReport report = checked.finish();
  for (const data::Finding& finding : report.findings) {
    v1::ValidateFileResponse response;
    *response.mutable_finding() = data_view::finding_view(finding);
    if (!sink(std::move(response))) return nobody_listens();
  }
  v1::ValidateFileResponse statistics, verdict;
  *statistics.mutable_statistics() =
      data_view::statistics_view(report, encoded ? encoded->encoding : v1::RowEncoding());
  *verdict.mutable_verdict() = data_view::verdict_view(report);
  if (!sink(std::move(statistics)) || !sink(std::move(verdict))) return nobody_listens();
  return {};
}

base::Result<v1::PreviewFileResponse> FileChecks::preview(const auth::Principal& who,
                                                          const v1::PreviewFileRequest& request,
                                                          const std::stop_token& stop) {
  DEX_RETURN_IF_ERROR(check(request));
  if (request.model().empty())
    return base::bad_field("MISSING_FIELD", "model", "must be given: its tokenizer makes the ids");
  if (!previews_.try_acquire()) {
    return base::Status(base::Code::kResourceExhausted, "RATE_LIMITED",
                        "two previews are being read already; try again in a moment");
  }
  const std::unique_ptr<std::counting_semaphore<>, void (*)(std::counting_semaphore<>*)> turn(
      &previews_, [](std::counting_semaphore<>* previews) { previews->release(); });
  DEX_ASSIGN_OR_RETURN(const v1::File file, readable(who, request.file()));
  DEX_ASSIGN_OR_RETURN(const Encoded encoded,
                       this->encoded(request.model(), request.encoding(), file));
  const text::Tokenizer* tokenizer = encoded.text->tokenizer.get();
  data::FilePreview::Options options;
  options.encoder = &encoded.encoder;
  options.tokenizer = tokenizer;
  options.lines = {request.lines().begin(), request.lines().end()};
  options.offset = request.offset();
  options.limit = request.limit() > 0 ? request.limit() : options.lines.empty() ? kRows : kMostRows;
  data::FilePreview shown(std::move(options));
  DEX_RETURN_IF_ERROR(read(file, [&](std::string_view piece) -> base::Result<bool> {
    if (stop.stop_requested()) return nobody_listens();
    shown.feed(piece);
    return !shown.done();
  }));
  v1::PreviewFileResponse response;
  *response.mutable_encoding() = encoded.encoding;
  size_t bytes = 0;
  for (const data::PreviewedRow& row : shown.finish()) {
    if (bytes > kReplyBytes) {
      // Where lines were named, whoever asked knows which are missing.
      if (request.lines().empty())
        response.set_next_offset(row.offset + (row.sequence > 0 ? 1 : 0));
      return response;
    }
    *response.add_rows() = data_view::preview_view(row, tokenizer);
    bytes += response.rows(response.rows_size() - 1).ByteSizeLong();
  }
  response.set_next_offset(shown.next_offset());
  return response;
}

}  // namespace dex::server
