#include "services/gateway/http/json_message.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "services/base/nearest.h"

namespace dex::gateway::http {

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using nlohmann::json;

constexpr int kDeepest = 64;
constexpr size_t kMostUnknown = 20;

// Whether brackets nest too deep; looked at before anything is built from the text.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDeepest) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

base::Status no_json(const std::string& what) {
  return base::invalid_field("body", "the body is no JSON object that can be read: " + what);
}

// Parses, and finds keys that an object has twice: the second would silently win.
base::Result<json> parse_object(std::string_view text) {
  std::vector<std::set<std::string>> open;
  std::string twice;
  const auto watch = [&](int /*depth*/, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second &&
        twice.empty()) {
      twice = value.get<std::string>();
    }
    return true;
  };
  try {
    json parsed = json::parse(text, watch);
    if (!parsed.is_object()) return no_json("it holds something else");
    if (!twice.empty()) return base::invalid_field(twice, "the key '" + twice + "' comes twice");
    return parsed;
  } catch (const json::exception& error) {
    return no_json(error.what());
  }
}

// Messages whose JSON is not an object of their fields.
bool is_well_known(const Descriptor& type) {
  return type.full_name().starts_with("google.protobuf.");
}

const FieldDescriptor* field_named(const Descriptor& type, const std::string& key) {
  if (const auto* field = type.FindFieldByName(key)) return field;
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->json_name() == key) return type.field(i);
  }
  return nullptr;
}

struct UnknownKeys {
  std::vector<base::FieldViolation> found;

  void visit(const json& value, const Descriptor& type, const std::string& path);
  void visit_field(const json& value, const FieldDescriptor& field, const std::string& path);
  void add(const std::string& path, const std::string& key, const Descriptor& type);
};

void UnknownKeys::add(const std::string& path, const std::string& key, const Descriptor& type) {
  std::vector<std::string_view> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  const auto close = base::nearest(key, names);
  std::string what = "is not known in " + type.full_name();
  if (!close.empty()) what += "; did you mean '" + std::string(close) + "'?";
  found.push_back({path, what});
}

void UnknownKeys::visit_field(const json& value, const FieldDescriptor& field,
                              const std::string& path) {
  const Descriptor* type = field.message_type();
  if (type == nullptr) return;
  if (field.is_map()) {
    const auto* inner = type->map_value()->message_type();
    if (inner == nullptr || !value.is_object()) return;
    for (const auto& [key, item] : value.items()) visit(item, *inner, path + "." + key);
  } else if (field.is_repeated() && value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      visit(value[i], *type, path + "[" + std::to_string(i) + "]");
    }
  } else {
    visit(value, *type, path);
  }
}

void UnknownKeys::visit(const json& value, const Descriptor& type, const std::string& path) {
  if (!value.is_object() || is_well_known(type)) return;
  for (const auto& [key, item] : value.items()) {
    if (found.size() >= kMostUnknown) return;
    const std::string here = path.empty() ? key : path + "." + key;
    const auto* field = field_named(type, key);
    if (field == nullptr) {
      add(here, key, type);
    } else {
      visit_field(item, *field, here);
    }
  }
}

base::Status unknown_fields(std::vector<base::FieldViolation> found) {
  base::Status status = base::invalid_argument(
      "UNKNOWN_FIELD",
      "'" + found.front().field + "' " + found.front().description +
          (found.size() > 1 ? " (and " + std::to_string(found.size() - 1) + " more)" : ""));
  for (auto& violation : found) {
    status = std::move(status).with_violation(std::move(violation.field),
                                              std::move(violation.description));
  }
  return status;
}

}  // namespace

std::string to_json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  // Fails for an Any of a type that is not linked alone; no message of ours has one.
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) return "{}";
  return text;
}

base::Status from_json(std::string_view text, google::protobuf::Message& message) {
  message.Clear();
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return {};
  if (too_deep(text)) {
    return no_json("it nests deeper than " + std::to_string(kDeepest) + " levels");
  }
  DEX_ASSIGN_OR_RETURN(const json parsed, parse_object(text));
  UnknownKeys unknown;
  unknown.visit(parsed, *message.GetDescriptor(), "");
  if (!unknown.found.empty()) return unknown_fields(std::move(unknown.found));
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(text.data(), text.size()), &message);
  if (!status.ok()) return no_json(std::string(status.message()));
  return {};
}

}  // namespace dex::gateway::http
