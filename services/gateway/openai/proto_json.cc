#include "services/gateway/openai/proto_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cctype>
#include <memory>

namespace dex::gateway::openai {

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// protobuf's own parser stops at the first fault and names it in a sentence, so keys are compared
// with the descriptor here, all of them, and the parser then judges values only.
void check_keys(const json& value, const std::string& path, const Descriptor& type, Faults& faults);

void check_field(const json& value, const std::string& path, const FieldDescriptor& field,
                 Faults& faults) {
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return;
  if (field.is_map()) {
    const FieldDescriptor& held = *field.message_type()->map_value();
    if (!value.is_object() || held.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return;
    for (const auto& [key, item] : value.items())
      check_keys(item, path + "." + key, *held.message_type(), faults);
    return;
  }
  if (!field.is_repeated()) return check_keys(value, path, *field.message_type(), faults);
  if (!value.is_array()) return;
  for (size_t i = 0; i < value.size(); ++i) {
    check_keys(value[i], path + "[" + std::to_string(i) + "]", *field.message_type(), faults);
  }
}

void check_keys(const json& value, const std::string& path, const Descriptor& type,
                Faults& faults) {
  // Timestamps and their like are strings in JSON; what is no object is the parser's to refuse.
  if (!value.is_object() || type.full_name().starts_with("google.protobuf.")) return;
  std::set<std::string, std::less<>> known;
  for (int i = 0; i < type.field_count(); ++i) known.insert(type.field(i)->name());
  for (const auto& [key, item] : value.items()) {
    if (faults.full()) return;
    const std::string here = path.empty() ? key : path + "." + key;
    // By its proto name alone: one spelling, as in replies.
    if (const auto* field = type.FindFieldByName(key)) {
      check_field(item, here, *field, faults);
      continue;
    }
    const std::string near = nearest(key, known);
    faults.add("UNKNOWN_FIELD", here,
               near.empty() ? "is not known" : "is not known; did you mean " + near + "?");
  }
}

}  // namespace

json to_json(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) return nullptr;
  json value = json::parse(text, nullptr, false);
  return value.is_discarded() ? json() : value;
}

void read_message(const json& value, const std::string& path, Message& message, Faults& faults) {
  if (!value.is_object()) {
    faults.add("INVALID_FIELD", path, "must be a JSON object");
    return;
  }
  Faults unknown;
  check_keys(value, path, *message.GetDescriptor(), unknown);
  if (!unknown.empty()) {
    const base::Status why = unknown.status();
    for (const auto& violation : why.violations())
      faults.add("UNKNOWN_FIELD", violation.field, violation.description);
    return;
  }
  const std::unique_ptr<Message> read(message.New());
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  const auto status = google::protobuf::util::JsonStringToMessage(text, read.get());
  if (!status.ok()) {
    const auto why = status.message();
    faults.add("INVALID_FIELD", path,
               "can't be read: " + std::string(why.data(), std::min<size_t>(why.size(), 200)));
    return;
  }
  message.MergeFrom(*read);
}

json unix_seconds(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0) return nullptr;
  return time.seconds();
}

std::string lower_name(std::string_view value, std::string_view prefix) {
  if (value.starts_with(prefix)) value.remove_prefix(prefix.size());
  std::string word(value);
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word;
}

}  // namespace dex::gateway::openai
