#include "services/gateway/openai/chat_messages.h"

#include <algorithm>
#include <array>

namespace dex::gateway::openai {

namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                    "tool"};

std::string read_parts(const json& parts, const std::string& path, Faults& faults) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string here = path + "[" + std::to_string(i) + "]";
    if (!parts[i].is_object()) {
      faults.add("INVALID_FIELD", here, "must be a JSON object");
      continue;
    }
    ObjectReader part(parts[i], here, faults);
    const std::string type = part.required_text("type");
    if (type != "text") {
      if (!type.empty())
        part.unsupported("type", "must be text: this server reads no images, audio or files");
      continue;
    }
    text += part.text("text").value_or("");
    part.end();
  }
  return text;
}

std::string read_content(ObjectReader& message, Faults& faults) {
  const json* content = message.take("content");
  if (content == nullptr) {
    faults.add("MISSING_FIELD", message.path_of("content"), "must be given");
    return {};
  }
  if (content->is_string()) return content->get<std::string>();
  if (content->is_array()) return read_parts(*content, message.path_of("content"), faults);
  faults.add("INVALID_FIELD", message.path_of("content"), "must be a string or a list of parts");
  return {};
}

void read_message(const json& value, const std::string& path, Faults& faults,
                  v1::ChatMessage& out) {
  if (!value.is_object()) return faults.add("INVALID_FIELD", path, "must be a JSON object");
  ObjectReader message(value, path, faults);
  out.set_role(message.required_text("role"));
  if (!out.role().empty() && std::find(kRoles.begin(), kRoles.end(), out.role()) == kRoles.end()) {
    faults.add("INVALID_FIELD", path + ".role",
               "must be system, developer, user, assistant or tool, got '" +
                   out.role().substr(0, 40) + "'");
  }
  out.set_content(read_content(message, faults));
  for (const char* key : {"tool_calls", "annotations"}) {
    const json* list = message.take(key);
    if (list != nullptr && !(list->is_array() && list->empty()))
      message.unsupported(key, "is not supported by this server; leave it out");
  }
  message.refuse({"name", "refusal", "audio", "function_call", "tool_call_id", "weight"});
  message.end();
}

}  // namespace

void read_messages(ObjectReader& reader, v1::ChatInput& chat) {
  const json* messages = reader.take("messages");
  Faults& faults = reader.faults();
  if (messages == nullptr || (messages->is_array() && messages->empty()))
    return faults.add("MISSING_FIELD", "messages", "must have at least one message");
  if (!messages->is_array()) return faults.add("INVALID_FIELD", "messages", "must be a list");
  for (size_t i = 0; i < messages->size(); ++i) {
    read_message((*messages)[i], "messages[" + std::to_string(i) + "]", faults,
                 *chat.add_messages());
  }
}

}  // namespace dex::gateway::openai
