#pragma once

#include <google/protobuf/message.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dex::gateway {

inline constexpr std::string_view kInferenceService = "dex.v1.InferenceService";

// The services of dex.v1 that this gateway offers, by full name; none of dex.internal.v1.
const std::vector<std::string>& public_services();

// "/dex.v1.FileService/GetFile" → "dex.v1.FileService"; empty when the path has no such form.
std::string_view service_of(std::string_view path);
bool is_public(std::string_view service);

// Whether the path names a method of the linked .proto files.
bool is_known(std::string_view path);

// An empty request of the method that the path names; null if it is not known.
std::unique_ptr<google::protobuf::Message> new_request(std::string_view path);

// Likewise of its reply.
std::unique_ptr<google::protobuf::Message> new_reply(std::string_view path);

// Whether the method changes something: its request has a request_id, itself or in its header
// (api.md §1, idempotency). False for a path that is not known.
bool changes_state(std::string_view path);

// Whether the path names a method known to be unary. Methods that only a newer scheduler knows
// count as streams.
bool is_unary(std::string_view path);

}  // namespace dex::gateway
