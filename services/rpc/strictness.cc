#include "services/rpc/strictness.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/unknown_field_set.h>

#include <string>
#include <vector>

namespace dex::rpc {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kMostNamed = 20;

struct Walk {
  std::vector<base::FieldViolation> found;

  void visit(const Message& message, const std::string& path);
  void visit_field(const Message& message, const FieldDescriptor& field, const std::string& path);
};

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

void Walk::visit_field(const Message& message, const FieldDescriptor& field,
                       const std::string& path) {
  const auto& reflection = *message.GetReflection();
  const std::string here = join(path, field.name());
  if (!field.is_repeated()) {
    visit(reflection.GetMessage(message, &field), here);
    return;
  }
  for (int i = 0; i < reflection.FieldSize(message, &field) && found.size() < kMostNamed; ++i) {
    visit(reflection.GetRepeatedMessage(message, &field, i), here + "[" + std::to_string(i) + "]");
  }
}

void Walk::visit(const Message& message, const std::string& path) {
  const auto& reflection = *message.GetReflection();
  const auto& unknown = reflection.GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count() && found.size() < kMostNamed; ++i) {
    const std::string number = std::to_string(unknown.field(i).number());
    found.push_back({join(path, "#" + number), "field number " + number + " is not known in " +
                                                   message.GetDescriptor()->full_name()});
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (found.size() >= kMostNamed) return;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) visit_field(message, *field, path);
  }
}

}  // namespace

base::Status check_known_fields(const Message& message) {
  Walk walk;
  walk.visit(message, "");
  if (walk.found.empty()) return {};
  base::Status status(base::Code::kInvalidArgument, "UNKNOWN_FIELD",
                      walk.found.front().field + ": " + walk.found.front().description +
                          "; the client may be newer than this server");
  for (auto& violation : walk.found) {
    status = std::move(status).with_violation(std::move(violation.field),
                                              std::move(violation.description));
  }
  return status;
}

}  // namespace dex::rpc
