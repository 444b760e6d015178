#include "services/rpc/reasons.h"

namespace dex::rpc {

namespace {

using base::Code;
using std::chrono::milliseconds;

constexpr std::string_view kUser = "USER";
constexpr std::string_view kSystem = "SYSTEM";
constexpr std::string_view kCapacity = "CAPACITY";

// api.md §1. The first row of each code is that code's default reason.
constexpr Reason kReasons[] = {
    {"INVALID_FIELD", Code::kInvalidArgument, 400, kUser, false},
    {"MISSING_FIELD", Code::kInvalidArgument, 400, kUser, false},
    {"VALUE_OUT_OF_RANGE", Code::kInvalidArgument, 400, kUser, false},
    {"UNKNOWN_FIELD", Code::kInvalidArgument, 400, kUser, false},
    {"UNUSED_FIELD", Code::kInvalidArgument, 400, kUser, false},
    {"CONFLICTING_FIELDS", Code::kInvalidArgument, 400, kUser, false},
    {"UNKNOWN_PRESET", Code::kInvalidArgument, 400, kUser, false},
    {"UNSUPPORTED_PARAMETER", Code::kInvalidArgument, 400, kUser, false},
    {"DEAD_CONFIGURATION", Code::kInvalidArgument, 400, kUser, false},
    {"CONTEXT_LENGTH_EXCEEDED", Code::kInvalidArgument, 400, kUser, false},
    {"INVALID_CURSOR", Code::kInvalidArgument, 400, kUser, false},
    {"PATH_NOT_ALLOWED", Code::kInvalidArgument, 400, kUser, false},
    {"TEMPLATE_FAILED", Code::kInvalidArgument, 400, kUser, false},
    {"CHECKSUM_MISMATCH", Code::kInvalidArgument, 400, kUser, false},
    {"TOO_LARGE", Code::kInvalidArgument, 413, kUser, false},
    {"HEADERS_TOO_LARGE", Code::kInvalidArgument, 431, kUser, false},
    {"UPLOAD_OFFSET", Code::kOutOfRange, 400, kUser, true},
    {"API_KEY_MISSING", Code::kUnauthenticated, 401, kUser, false},
    {"API_KEY_INVALID", Code::kUnauthenticated, 401, kUser, false},
    {"API_KEY_EXPIRED", Code::kUnauthenticated, 401, kUser, false},
    {"SCOPE_MISSING", Code::kPermissionDenied, 403, kUser, false},
    {"ORIGIN_NOT_ALLOWED", Code::kPermissionDenied, 403, kUser, false},
    {"RESOURCE_NOT_FOUND", Code::kNotFound, 404, kUser, false},
    {"MODEL_NOT_FOUND", Code::kNotFound, 404, kUser, false},
    {"ROUTE_NOT_FOUND", Code::kNotFound, 404, kUser, false},
    {"NAME_TAKEN", Code::kAlreadyExists, 409, kUser, false},
    {"IDEMPOTENCY_CONFLICT", Code::kAlreadyExists, 409, kUser, false},
    {"ETAG_MISMATCH", Code::kAborted, 409, kUser, false},
    {"LEASE_LOST", Code::kAborted, 409, kUser, false},
    {"JOB_STATE_CONFLICT", Code::kFailedPrecondition, 400, kUser, false},
    {"FILE_NOT_READY", Code::kFailedPrecondition, 400, kUser, true},
    {"FILE_INVALID", Code::kFailedPrecondition, 400, kUser, false},
    {"FILE_IN_USE", Code::kFailedPrecondition, 400, kUser, false},
    {"CHECKPOINT_NOT_RESUMABLE", Code::kFailedPrecondition, 400, kUser, false},
    {"ADAPTER_MISMATCH", Code::kFailedPrecondition, 400, kUser, false},
    {"ADAPTER_NOT_PROVEN", Code::kFailedPrecondition, 400, kUser, false},
    {"ADAPTER_IN_USE", Code::kFailedPrecondition, 400, kUser, false},
    {"ADAPTER_PINNED", Code::kFailedPrecondition, 400, kUser, false},
    {"ADAPTER_DISABLED", Code::kFailedPrecondition, 400, kUser, false},
    {"ADAPTERS_OVERLAP", Code::kFailedPrecondition, 400, kUser, false},
    {"NOT_FOLDABLE", Code::kFailedPrecondition, 400, kUser, false},
    {"GATE_NOT_PASSED", Code::kFailedPrecondition, 400, kUser, false},
    {"DOES_NOT_FIT", Code::kFailedPrecondition, 400, kCapacity, false},
    {"RATE_LIMITED", Code::kResourceExhausted, 429, kCapacity, true, milliseconds(1000)},
    {"QUEUE_FULL", Code::kResourceExhausted, 429, kCapacity, true, milliseconds(30000)},
    {"ADAPTER_SLOTS_FULL", Code::kResourceExhausted, 429, kCapacity, true, milliseconds(5000)},
    {"QUOTA_EXCEEDED", Code::kResourceExhausted, 429, kCapacity, false},
    {"STORAGE_FULL", Code::kResourceExhausted, 429, kCapacity, false},
    {"STORE_UNAVAILABLE", Code::kUnavailable, 503, kSystem, true, milliseconds(2000)},
    {"NO_WORKER", Code::kUnavailable, 503, kCapacity, true, milliseconds(5000)},
    {"ADAPTER_LOADING", Code::kUnavailable, 503, kCapacity, true, milliseconds(5000)},
    {"SERVER_DRAINING", Code::kUnavailable, 503, kSystem, true, milliseconds(2000)},
    {"ENGINE_LOST", Code::kUnavailable, 503, kSystem, true, milliseconds(2000)},
    {"WATCH_LAGGED", Code::kUnavailable, 503, kSystem, true, milliseconds(100)},
    {"DEADLINE", Code::kDeadlineExceeded, 504, kSystem, true},
    {"CLIENT_CANCELLED", Code::kCancelled, 499, kUser, false},
    {"NOT_SUPPORTED", Code::kUnimplemented, 501, kUser, false},
    {"METHOD_NOT_ALLOWED", Code::kUnimplemented, 405, kUser, false},
    {"ARTIFACT_CORRUPT", Code::kDataLoss, 500, kSystem, false},
    {"INTERNAL", Code::kInternal, 500, kSystem, true},
};

}  // namespace

const Reason& default_reason(Code code) {
  for (const Reason& row : kReasons) {
    if (row.code == code) return row;
  }
  return kReasons[std::size(kReasons) - 1];
}

const Reason& find_reason(std::string_view word, Code code) {
  for (const Reason& row : kReasons) {
    if (row.word == word) return row;
  }
  return default_reason(code);
}

}  // namespace dex::rpc
