#include "tests/unit/proto/listing.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <map>
#include <stdexcept>

namespace dex::contract {

namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::ServiceDescriptor;

std::string type_of(const FieldDescriptor& field) {
  if (field.message_type() != nullptr) return field.message_type()->full_name();
  if (field.enum_type() != nullptr) return field.enum_type()->full_name();
  return field.type_name();
}

std::string kind_of(const FieldDescriptor& field) {
  if (field.is_map()) {
    const Descriptor& entry = *field.message_type();
    return "map<" + type_of(*entry.map_key()) + ", " + type_of(*entry.map_value()) + ">";
  }
  if (field.is_repeated()) return "repeated " + type_of(field);
  if (field.real_containing_oneof() != nullptr)
    return "oneof " + field.real_containing_oneof()->name() + " " + type_of(field);
  const bool knows = field.has_presence() && field.message_type() == nullptr;
  return (knows ? "optional " : "") + type_of(field);
}

// Numbers one by one: a range that grows by its neighbour is no change of what was there. `last` is
// the range's own last number.
void add_reserved(const std::string& owner, int first, int last, Listing& lines) {
  constexpr int kMost = 1000;
  if (last - first >= kMost) {
    throw std::invalid_argument(owner + " reserves " + std::to_string(first) + " to " +
                                std::to_string(last) + "; at most " + std::to_string(kMost) +
                                " numbers in a range are listed");
  }
  for (int number = first; number <= last; ++number)
    lines.push_back(owner + " reserved " + std::to_string(number));
}

void add_enum(const EnumDescriptor& type, Listing& lines) {
  lines.push_back(type.full_name() + " = enum");
  for (int i = 0; i < type.value_count(); ++i) {
    lines.push_back(type.full_name() + "." + type.value(i)->name() + " = " +
                    std::to_string(type.value(i)->number()));
  }
  for (int i = 0; i < type.reserved_range_count(); ++i) {
    const auto& range = *type.reserved_range(i);
    add_reserved(type.full_name(), range.start, range.end, lines);  // both ends belong to it
  }
  for (int i = 0; i < type.reserved_name_count(); ++i)
    lines.push_back(type.full_name() + " reserved " + type.reserved_name(i));
}

void add_message(const Descriptor& type, Listing& lines) {
  if (type.options().map_entry()) return;  // said by its field
  lines.push_back(type.full_name() + " = message");
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    lines.push_back(field.full_name() + " = " + std::to_string(field.number()) + " " +
                    kind_of(field));
  }
  for (int i = 0; i < type.reserved_range_count(); ++i) {
    const auto& range = *type.reserved_range(i);
    add_reserved(type.full_name(), range.start, range.end - 1, lines);  // `end` is outside
  }
  for (int i = 0; i < type.reserved_name_count(); ++i)
    lines.push_back(type.full_name() + " reserved " + type.reserved_name(i));
  for (int i = 0; i < type.enum_type_count(); ++i) add_enum(*type.enum_type(i), lines);
  for (int i = 0; i < type.nested_type_count(); ++i) add_message(*type.nested_type(i), lines);
}

void add_service(const ServiceDescriptor& service, Listing& lines) {
  lines.push_back(service.full_name() + " = service");
  for (int i = 0; i < service.method_count(); ++i) {
    const auto& rpc = *service.method(i);
    lines.push_back(rpc.full_name() + " = rpc (" + (rpc.client_streaming() ? "stream " : "") +
                    rpc.input_type()->full_name() + ") returns (" +
                    (rpc.server_streaming() ? "stream " : "") + rpc.output_type()->full_name() +
                    ")");
  }
}

}  // namespace

Listing list_contract(const google::protobuf::FileDescriptorSet& set, const std::string& package) {
  google::protobuf::DescriptorPool pool;
  std::map<std::string, const google::protobuf::FileDescriptor*> files;
  for (const auto& proto : set.file()) {
    const auto* file = pool.BuildFile(proto);
    if (file == nullptr) {
      throw std::invalid_argument(proto.name() + " does not fit the files before it in the set");
    }
    if (file->package().starts_with(package)) files[file->name()] = file;
  }
  Listing lines;
  for (const auto& [name, file] : files) {
    for (int i = 0; i < file->service_count(); ++i) add_service(*file->service(i), lines);
    for (int i = 0; i < file->enum_type_count(); ++i) add_enum(*file->enum_type(i), lines);
    for (int i = 0; i < file->message_type_count(); ++i) add_message(*file->message_type(i), lines);
  }
  return lines;
}

}  // namespace dex::contract
