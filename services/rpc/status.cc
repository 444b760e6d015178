#include "services/rpc/status.h"

#include <google/protobuf/util/time_util.h>

#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/deterministic_bytes.h"
#include "services/rpc/limits.h"
#include "services/rpc/reasons.h"

namespace dex::rpc {

namespace {

constexpr const char* kDomain = "dex";

std::string metadata_of(const base::Status& status, std::string_view key) {
  for (const auto& [k, v] : status.metadata()) {
    if (k == key) return v;
  }
  return {};
}

google::rpc::ErrorInfo error_info(const base::Status& status, const Reason& reason,
                                  std::string_view request_id) {
  google::rpc::ErrorInfo info;
  info.set_reason(status.reason().empty() ? std::string(reason.word) : status.reason());
  info.set_domain(kDomain);
  auto& metadata = *info.mutable_metadata();
  for (const auto& [key, value] : status.metadata()) metadata[key] = value;
  metadata["category"] = std::string(reason.category);
  metadata["retryable"] = reason.retryable ? "true" : "false";
  if (!request_id.empty()) metadata["request_id"] = std::string(request_id);
  if (!status.violations().empty()) metadata["param"] = status.violations().front().field;
  return info;
}

// At most `limit` bytes, cut between characters.
std::string shortened(const std::string& text, size_t limit) {
  if (text.size() <= limit) return text;
  size_t end = limit - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "…";
}

void add_bad_request(const base::Status& status, google::rpc::Status& wire) {
  if (status.violations().empty()) return;
  google::rpc::BadRequest bad;
  for (const auto& violation : status.violations()) {
    auto* field = bad.add_field_violations();
    field->set_field(shortened(violation.field, 200));
    field->set_description(shortened(violation.description, 400));
    if (wire.ByteSizeLong() + bad.ByteSizeLong() > kLargestErrorBytes - 1024) break;
  }
  wire.add_details()->PackFrom(bad);
}

void add_retry_info(const Reason& reason, google::rpc::Status& wire) {
  if (reason.retry_after.count() == 0) return;
  google::rpc::RetryInfo retry;
  *retry.mutable_retry_delay() =
      google::protobuf::util::TimeUtil::MillisecondsToDuration(reason.retry_after.count());
  wire.add_details()->PackFrom(retry);
}

// The detail that belongs to one code: what is missing, which condition fails, which quota is used
// up.
void add_code_detail(const base::Status& status, google::rpc::Status& wire) {
  if (status.code() == base::Code::kNotFound) {
    google::rpc::ResourceInfo resource;
    resource.set_resource_type(metadata_of(status, "resource_type"));
    resource.set_resource_name(metadata_of(status, "resource_name"));
    resource.set_description(shortened(status.message(), 200));
    wire.add_details()->PackFrom(resource);
  } else if (status.code() == base::Code::kFailedPrecondition) {
    google::rpc::PreconditionFailure failure;
    auto* violation = failure.add_violations();
    violation->set_type(status.reason());
    violation->set_subject(metadata_of(status, "subject"));
    violation->set_description(shortened(status.message(), 200));
    wire.add_details()->PackFrom(failure);
  } else if (status.code() == base::Code::kResourceExhausted) {
    google::rpc::QuotaFailure failure;
    auto* violation = failure.add_violations();
    violation->set_subject(metadata_of(status, "subject"));
    violation->set_description(shortened(status.message(), 200));
    wire.add_details()->PackFrom(failure);
  }
}

base::Code base_code(grpc::StatusCode code) {
  if (code == grpc::StatusCode::UNKNOWN) return base::Code::kInternal;
  return static_cast<base::Code>(code);
}

// Reads one detail of type M; false when the status has none.
template <typename M>
bool read_detail(const grpc::Status& status, M& out) {
  google::rpc::Status wire;
  if (!wire.ParseFromString(status.error_details())) return false;
  for (const auto& detail : wire.details()) {
    if (detail.Is<M>() && detail.UnpackTo(&out)) return true;
  }
  return false;
}

// Any::PackFrom with the map in a fixed order: the same error is the same bytes.
void pack(const google::rpc::ErrorInfo& info, google::protobuf::Any& out) {
  out.PackFrom(google::rpc::ErrorInfo());  // the type's name
  out.set_value(proto::deterministic_bytes(info));
}

}  // namespace

grpc::Status to_grpc(const base::Status& status, std::string_view request_id) {
  if (status.ok()) return grpc::Status::OK;
  const Reason& reason = find_reason(status.reason(), status.code());
  google::rpc::Status wire;
  wire.set_code(static_cast<int>(status.code()));
  const std::string message = shortened(status.message(), kLongestErrorMessage);
  wire.set_message(message);
  pack(error_info(status, reason, request_id), *wire.add_details());
  add_bad_request(status, wire);
  add_retry_info(reason, wire);
  add_code_detail(status, wire);
  return {static_cast<grpc::StatusCode>(status.code()), message, wire.SerializeAsString()};
}

base::Status from_grpc(const grpc::Status& status) {
  if (status.ok()) return {};
  const base::Code code = base_code(status.error_code());
  google::rpc::ErrorInfo info;
  const bool told = read_detail(status, info) && !info.reason().empty();
  base::Status result(code, told ? info.reason() : std::string(default_reason(code).word),
                      status.error_message());
  for (const auto& [key, value] : info.metadata()) {
    result = std::move(result).with_metadata(key, value);
  }
  google::rpc::BadRequest bad;
  if (read_detail(status, bad)) {
    for (const auto& field : bad.field_violations()) {
      result = std::move(result).with_violation(field.field(), field.description());
    }
  }
  return result;
}

bool has_error_info(const grpc::Status& status) {
  google::rpc::ErrorInfo info;
  return read_detail(status, info);
}

grpc::Status with_error_info(const grpc::Status& status, std::string_view request_id) {
  if (status.ok() || !status.error_details().empty()) return status;
  return to_grpc(from_grpc(status), request_id);
}

bool retryable(const base::Status& status) {
  const std::string told = metadata_of(status, "retryable");
  if (!told.empty()) return told == "true";
  return !status.ok() && find_reason(status.reason(), status.code()).retryable;
}

}  // namespace dex::rpc
