#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "scheduler/store/records.h"
#include "services/base/ids.h"
#include "services/base/status.h"

namespace dex::server {

// What a mutating call answers (api.md §1, idempotency).
template <typename Reply>
struct Answer {
  Reply reply;
  bool replayed = false;  // the request_id was known: the reply is of what its first call did
};

// A client's request_id, or a new one when it sent none. INVALID_FIELD when it is longer than 64
// characters or has unprintable ones.
base::Result<std::string> request_key(const std::string& request_id, base::UlidGenerator& ids);

// SHA-256 of a message in deterministic form. The caller clears what does not count (request_id).
std::string message_sha256(const google::protobuf::Message& message);
// The same of its type's name and the message: a load and an unload of one adapter have equal
// bytes.
std::string request_sha256(const google::protobuf::Message& message);

// What a mutating call is known by: its request_id (made here if the client sent none, since the
// store may send a script twice) and the hash of the rest.
template <typename Request>
base::Result<store::RequestKey> identity_of(const Request& request, base::UlidGenerator& ids) {
  DEX_ASSIGN_OR_RETURN(const std::string id, request_key(request.request_id(), ids));
  Request body = request;
  body.clear_request_id();
  return store::RequestKey{id, request_sha256(body)};
}

}  // namespace dex::server
