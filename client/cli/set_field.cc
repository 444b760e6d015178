#include "client/cli/set_field.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "client/cli/names.h"
#include "services/text/utf8.h"

namespace dex::cli {

namespace {

using base::Status;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return c == '-' || c == '+' ? '_' : std::toupper(c); });
  return text;
}

Status unknown_field(const Message& message, const std::string& path, const std::string& name) {
  std::string names;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    names += (i ? ", " : "") + message.GetDescriptor()->field(i)->name();
  }
  return base::invalid_argument("UNKNOWN_FIELD",
                                path + ": there is no field \"" + name + "\"; there are " + names);
}

Status bad_value(const std::string& path, const std::string& value, const std::string& wanted) {
  return base::invalid_argument("INVALID_FIELD", path + ": \"" + value + "\" is not " + wanted);
}

// "SCHEDULE_COSINE" and "cosine" both name Lambda.Schedule's value 2.
const google::protobuf::EnumValueDescriptor* find_enum_value(const EnumDescriptor& type,
                                                             const std::string& text) {
  const std::string wanted = upper(text);
  const std::string& zero = type.value(0)->name();
  const std::string prefix = zero.substr(0, zero.rfind("UNSPECIFIED"));
  for (int i = 1; i < type.value_count(); ++i) {
    const std::string& name = type.value(i)->name();
    if (name == wanted || name == prefix + wanted) return type.value(i);
  }
  return nullptr;
}

std::string enum_names(const EnumDescriptor& type) {
  std::string names;
  for (int i = 1; i < type.value_count(); ++i)
    names += (i > 1 ? ", " : "") + short_name(*type.value(i));
  return names;
}

// The value as JSON for this type of field; a Status names what would be right.
base::Result<nlohmann::json> to_json_value(const FieldDescriptor& field, const std::string& path,
                                           const std::string& text) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      if (text == "true" || text == "false") return nlohmann::json(text == "true");
      return bad_value(path, text, "true or false");
    case FieldDescriptor::CPPTYPE_STRING:
      return nlohmann::json(text);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto* value = find_enum_value(*field.enum_type(), text);
      if (!value) return bad_value(path, text, "one of " + enum_names(*field.enum_type()));
      return nlohmann::json(value->name());
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT: {
      char* end = nullptr;
      const double value = std::strtod(text.c_str(), &end);
      if (text.empty() || *end != '\0') return bad_value(path, text, "a number");
      if (value != value) return nlohmann::json("NaN");
      if (value - value != 0) return nlohmann::json(value > 0 ? "Infinity" : "-Infinity");
      return nlohmann::json(value);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return bad_value(path, text, "settable as a whole; name one of its fields");
    default: {
      int64_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      const bool is_unsigned = field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32 ||
                               field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64;
      if (error != std::errc() || end != text.data() + text.size() || (is_unsigned && value < 0)) {
        return bad_value(path, text,
                         is_unsigned ? "a whole number of at least 0" : "a whole number");
      }
      return nlohmann::json(value);
    }
  }
}

// Lets protobuf's own JSON reader do the setting, so that ranges of integers are checked there.
Status merge(Message& holder, const std::string& name, const nlohmann::json& value,
             const std::string& path) {
  std::unique_ptr<Message> one(holder.New());
  const auto status =
      google::protobuf::util::JsonStringToMessage(nlohmann::json{{name, value}}.dump(), one.get());
  if (!status.ok())
    return base::invalid_argument("INVALID_FIELD", path + ": " + std::string(status.message()));
  holder.MergeFrom(*one);
  return {};
}

Status set_leaf(Message& holder, const FieldDescriptor& field, const std::string& path,
                const std::string& text) {
  // JSON and protobuf hold nothing else, though a file's name may.
  if (const size_t bad = text::find_invalid_utf8(text); bad < text.size()) {
    return base::invalid_argument(
        "INVALID_FIELD", path + ": byte " + std::to_string(bad + 1) + " of the value is not UTF-8");
  }
  if (field.is_map()) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) return bad_value(path, text, "key=value");
    return merge(holder, field.name(), {{text.substr(0, equals), text.substr(equals + 1)}}, path);
  }
  if (!field.is_repeated()) {
    DEX_ASSIGN_OR_RETURN(const auto value, to_json_value(field, path, text));
    return merge(holder, field.name(), value, path);
  }
  auto list = nlohmann::json::array();
  std::stringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    DEX_ASSIGN_OR_RETURN(auto value, to_json_value(field, path, item));
    list.push_back(std::move(value));
  }
  return merge(holder, field.name(), list, path);
}

}  // namespace

Status set_field(Message& message, const std::string& path, const std::string& value) {
  Message* holder = &message;
  size_t begin = 0;
  while (true) {
    const size_t dot = path.find('.', begin);
    const std::string name = path.substr(begin, dot == std::string::npos ? dot : dot - begin);
    const FieldDescriptor* field = holder->GetDescriptor()->FindFieldByName(name);
    if (!field) return unknown_field(*holder, path, name);
    if (dot == std::string::npos) return set_leaf(*holder, *field, path, value);
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_repeated()) {
      return base::invalid_argument("UNKNOWN_FIELD",
                                    path + ": \"" + name + "\" has no fields of its own");
    }
    holder = holder->GetReflection()->MutableMessage(holder, field);
    begin = dot + 1;
  }
}

}  // namespace dex::cli
