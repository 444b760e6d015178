#include "services/gateway/proxy/message_text.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/proto_buffer_reader.h>

namespace dex::gateway {

bool parse(const grpc::ByteBuffer& bytes, google::protobuf::Message& message) {
  grpc::ByteBuffer copy = bytes;  // shares the slices; reading takes them
  grpc::ProtoBufferReader reader(&copy);
  return reader.status().ok() && message.ParseFromZeroCopyStream(&reader);
}

std::string text_of(const google::protobuf::Message& message, const char* name) {
  const auto* field = message.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr || field->is_repeated() ||
      field->type() != google::protobuf::FieldDescriptor::TYPE_STRING) {
    return {};
  }
  return message.GetReflection()->GetString(message, field);
}

}  // namespace dex::gateway
