#include <google/protobuf/descriptor.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>

#include "services/gateway/http/upstream.h"
#include "services/rpc/status.h"

namespace dex::gateway::http {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kLongestKey = 64;

// The string field `request_id` of a message, or of the `header` of an upload's first message.
struct KeyField {
  Message* message = nullptr;  // null: there is none
  const FieldDescriptor* field = nullptr;
};

KeyField key_field_of(Message& message) {
  const auto is_key = [](const FieldDescriptor* field) {
    return field != nullptr && !field->is_repeated() &&
           field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  };
  const auto* own = message.GetDescriptor()->FindFieldByName("request_id");
  if (is_key(own)) return {&message, own};
  const auto* header = message.GetDescriptor()->FindFieldByName("header");
  if (header == nullptr || header->is_repeated() || header->message_type() == nullptr) return {};
  const auto* inner = header->message_type()->FindFieldByName("request_id");
  if (!is_key(inner)) return {};
  return {message.GetReflection()->MutableMessage(&message, header), inner};
}

}  // namespace

base::Status take_idempotency_key(const Request& request, Message& message) {
  const auto key = request.header("idempotency-key");
  if (!key) return {};
  const bool usable =
      !key->empty() && key->size() <= kLongestKey &&
      std::all_of(key->begin(), key->end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (!usable) {
    return base::invalid_field("Idempotency-Key",
                               "the header Idempotency-Key must be 1 to 64 printable ASCII "
                               "characters without spaces, such as a UUID");
  }
  const KeyField found = key_field_of(message);
  if (found.message == nullptr) return {};
  const auto* reflection = found.message->GetReflection();
  const std::string named = reflection->GetString(*found.message, found.field);
  if (!named.empty() && named != *key) {
    return base::bad_field("CONFLICTING_FIELDS", "request_id",
                           "and the header Idempotency-Key differ; send one of them");
  }
  reflection->SetString(found.message, found.field, *key);
  return {};
}

grpc::ByteBuffer to_bytes(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own = false;
  // Fails for messages beyond 2 GiB alone; the front refuses an empty request like any other.
  const auto status = grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own);
  if (!status.ok()) bytes.Clear();
  return bytes;
}

bool from_bytes(grpc::ByteBuffer bytes, Message& message) {
  return grpc::SerializationTraits<Message>::Deserialize(&bytes, &message).ok();
}

grpc::Status bad_reply(const std::string& type) {
  return rpc::to_grpc(base::internal("a service behind this door answered with something that is "
                                     "no " +
                                     type),
                      "");
}

}  // namespace dex::gateway::http
