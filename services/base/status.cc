#include "services/base/status.h"

namespace dex::base {

namespace {
const std::string kEmpty;
const std::vector<FieldViolation> kNoViolations;
const std::vector<std::pair<std::string, std::string>> kNoMetadata;
}  // namespace

std::string_view name(Code code) {
  switch (code) {
    case Code::kOk:
      return "OK";
    case Code::kCancelled:
      return "CANCELLED";
    case Code::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case Code::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case Code::kNotFound:
      return "NOT_FOUND";
    case Code::kAlreadyExists:
      return "ALREADY_EXISTS";
    case Code::kPermissionDenied:
      return "PERMISSION_DENIED";
    case Code::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case Code::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case Code::kAborted:
      return "ABORTED";
    case Code::kOutOfRange:
      return "OUT_OF_RANGE";
    case Code::kUnimplemented:
      return "UNIMPLEMENTED";
    case Code::kInternal:
      return "INTERNAL";
    case Code::kUnavailable:
      return "UNAVAILABLE";
    case Code::kDataLoss:
      return "DATA_LOSS";
    case Code::kUnauthenticated:
      return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

Status::Status(Code code, std::string reason, std::string message)
    : failure_(Failure{code, std::move(reason), std::move(message), {}, {}}) {}

const std::string& Status::reason() const {
  return failure_ ? failure_->reason : kEmpty;
}
const std::string& Status::message() const {
  return failure_ ? failure_->message : kEmpty;
}
const std::vector<FieldViolation>& Status::violations() const {
  return failure_ ? failure_->violations : kNoViolations;
}
const std::vector<std::pair<std::string, std::string>>& Status::metadata() const {
  return failure_ ? failure_->metadata : kNoMetadata;
}

Status Status::with_violation(std::string field, std::string description) && {
  if (failure_) failure_->violations.push_back({std::move(field), std::move(description)});
  return std::move(*this);
}

Status Status::with_metadata(std::string key, std::string value) && {
  if (failure_) failure_->metadata.emplace_back(std::move(key), std::move(value));
  return std::move(*this);
}

Status Status::with_prefix(std::string_view prefix) && {
  if (failure_) failure_->message.insert(0, std::string(prefix) + ": ");
  return std::move(*this);
}

std::string Status::to_string() const {
  if (!failure_) return "OK";
  return std::string(name(failure_->code)) + " (" + failure_->reason + "): " + failure_->message;
}

Status invalid_argument(std::string reason, std::string message) {
  return {Code::kInvalidArgument, std::move(reason), std::move(message)};
}

Status invalid_field(std::string field, std::string message) {
  Status status{Code::kInvalidArgument, "INVALID_FIELD", field + ": " + message};
  return std::move(status).with_violation(std::move(field), std::move(message));
}

Status bad_field(std::string reason, std::string field, std::string what) {
  Status status{Code::kInvalidArgument, std::move(reason), field + " " + what};
  return std::move(status).with_violation(std::move(field), std::move(what));
}

Status not_found(std::string reason, std::string message) {
  return {Code::kNotFound, std::move(reason), std::move(message)};
}

Status failed_precondition(std::string reason, std::string message) {
  return {Code::kFailedPrecondition, std::move(reason), std::move(message)};
}

Status unavailable(std::string reason, std::string message) {
  return {Code::kUnavailable, std::move(reason), std::move(message)};
}

Status internal(std::string message) {
  return {Code::kInternal, "INTERNAL", std::move(message)};
}

}  // namespace dex::base
