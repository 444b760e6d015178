#pragma once

#include <grpcpp/support/status.h>

#include <string_view>

#include "services/base/status.h"

namespace dex::rpc {

// A failure as it travels: code, message and google.rpc details (api.md §1). ErrorInfo always, with
// domain "dex" and metadata category, retryable, request_id, param (the first bad field) and the
// status's own; BadRequest for violations, RetryInfo where waiting helps, ResourceInfo for
// NOT_FOUND (own metadata resource_type, resource_name), PreconditionFailure, QuotaFailure. OK maps
// to OK. Bounded, or clients could not receive it: a message of 1,000 bytes, fields as far as 4 KiB
// go.
grpc::Status to_grpc(const base::Status& status, std::string_view request_id);

// The way back, for clients: reason, violations and ErrorInfo's metadata. A status without our
// details (a broken connection, an old proxy) gets its code's usual reason. Code UNKNOWN →
// INTERNAL.
base::Status from_grpc(const grpc::Status& status);

// True when the status carries an ErrorInfo, i.e. somebody of ours said why.
bool has_error_info(const grpc::Status& status);

// Statuses that gRPC itself makes have no details: this adds ErrorInfo by the code's usual reason.
// Those that have details pass through untouched.
grpc::Status with_error_info(const grpc::Status& status, std::string_view request_id);

// Whether the error says that the same call may succeed later (ErrorInfo metadata `retryable`, else
// by the table). For callers that repeat.
bool retryable(const base::Status& status);

}  // namespace dex::rpc
