#include "scheduler/core/fields.h"

#include <google/protobuf/text_format.h>

#include <vector>

namespace dex::core {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

bool is_submessage(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field.is_repeated();
}

std::vector<const FieldDescriptor*> set_fields(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return fields;
}

void visit_below(const Message& message, const std::string& prefix,
                 const std::function<void(const std::string&)>& visit) {
  for (const FieldDescriptor* field : set_fields(message)) {
    const std::string path = prefix + field->name();
    if (is_submessage(*field)) {
      visit_below(message.GetReflection()->GetMessage(message, field), path + ".", visit);
    } else {
      visit(path);
    }
  }
}

// Copies one scalar, enum, string, repeated or map field.
void copy_field(const Message& from, Message& to, const FieldDescriptor& field) {
  std::unique_ptr<Message> only(from.New());
  only->CopyFrom(from);
  std::vector<const FieldDescriptor*> drop;
  for (const FieldDescriptor* other : set_fields(*only)) {
    if (other != &field) drop.push_back(other);
  }
  for (const FieldDescriptor* other : drop) only->GetReflection()->ClearField(only.get(), other);
  to.MergeFrom(*only);
}

bool is_set(const Message& message, const FieldDescriptor& field) {
  const auto* reflection = message.GetReflection();
  return field.is_repeated() ? reflection->FieldSize(message, &field) > 0
                             : reflection->HasField(message, &field);
}

bool is_decided(const Message& message, const FieldDescriptor& field) {
  const auto* oneof = field.real_containing_oneof();
  return is_set(message, field) || (oneof && message.GetReflection()->HasOneof(message, oneof));
}

void fill_below(const Message& from, Message& to, const std::string& prefix,
                const std::string& source, Sources& sources) {
  for (const FieldDescriptor* field : set_fields(from)) {
    const std::string path = prefix + field->name();
    if (is_submessage(*field)) {
      if (!is_set(to, *field) && is_decided(to, *field)) continue;  // another member of its oneof
      fill_below(from.GetReflection()->GetMessage(from, field),
                 *to.GetReflection()->MutableMessage(&to, field), path + ".", source, sources);
    } else if (!is_decided(to, *field)) {
      copy_field(from, to, *field);
      sources[path] = source;
    }
  }
}

// The message that holds the last part of `path`, or null where something on the way is unset.
struct Place {
  const Message* holder = nullptr;
  const FieldDescriptor* field = nullptr;
};

Place find(const Message& message, const std::string& path) {
  const Message* holder = &message;
  size_t begin = 0;
  while (true) {
    const size_t dot = path.find('.', begin);
    const FieldDescriptor* field =
        holder->GetDescriptor()->FindFieldByName(path.substr(begin, dot - begin));
    if (dot == std::string::npos) return {holder, field};
    if (!holder->GetReflection()->HasField(*holder, field)) return {};
    holder = &holder->GetReflection()->GetMessage(*holder, field);
    begin = dot + 1;
  }
}

}  // namespace

void for_each_set_field(const Message& message,
                        const std::function<void(const std::string&)>& visit) {
  visit_below(message, "", visit);
}

void fill_unset(const Message& from, Message& to, const std::string& source, Sources& sources) {
  fill_below(from, to, "", source, sources);
}

bool has_field(const Message& message, const std::string& path) {
  const Place place = find(message, path);
  return place.holder && is_set(*place.holder, *place.field);
}

void clear_field(Message& message, const std::string& path) {
  const Place place = find(message, path);
  if (!place.holder) return;
  // `find` walks const messages; the holder is part of `message`, which we may change.
  auto* holder = const_cast<Message*>(place.holder);
  holder->GetReflection()->ClearField(holder, place.field);
}

std::string field_text(const Message& message, const std::string& path) {
  const Place place = find(message, path);
  if (!place.holder || !is_set(*place.holder, *place.field)) return "";
  using google::protobuf::TextFormat;
  std::string text;
  if (!place.field->is_repeated()) {
    TextFormat::PrintFieldValueToString(*place.holder, place.field, -1, &text);
    return text;
  }
  const int size = place.holder->GetReflection()->FieldSize(*place.holder, place.field);
  for (int i = 0; i < size; ++i) {
    std::string entry;
    TextFormat::PrintFieldValueToString(*place.holder, place.field, i, &entry);
    text += (i > 0 ? ", " : "") + entry;
  }
  return text;
}

bool same_field(const Message& a, const Message& b, const std::string& path) {
  return has_field(a, path) == has_field(b, path) && field_text(a, path) == field_text(b, path);
}

void drop_empty(Message& message) {
  for (const FieldDescriptor* field : set_fields(message)) {
    if (!is_submessage(*field)) continue;
    Message* below = message.GetReflection()->MutableMessage(&message, field);
    drop_empty(*below);
    if (!field->real_containing_oneof() && set_fields(*below).empty())
      message.GetReflection()->ClearField(&message, field);
  }
}

}  // namespace dex::core
