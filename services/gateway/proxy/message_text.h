#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <string>

namespace dex::gateway {

// Whether these bytes are such a message; they stay as they are.
bool parse(const grpc::ByteBuffer& bytes, google::protobuf::Message& message);

// A string field by its name; empty where the message has no single string of that name.
std::string text_of(const google::protobuf::Message& message, const char* name);

}  // namespace dex::gateway
