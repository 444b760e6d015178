#include <algorithm>
#include <array>

#include "services/base/nearest.h"
#include "services/data/row_parser.h"

// The chat half of RowParser: messages, roles, weights.
namespace dex::data {

namespace {

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
constexpr std::string_view kMessageKeys[] = {"role", "content", "name", "weight"};

bool is_known_role(std::string_view role) {
  return std::ranges::find(kRoles, role) != std::end(kRoles);
}

// Roles of other programs.
std::string_view usual_role(std::string_view role) {
  if (role == "human" || role == "customer") return "user";
  if (role == "gpt" || role == "bot" || role == "ai" || role == "model" || role == "chatgpt")
    return "assistant";
  if (role == "function") return "tool";
  return base::nearest(role, kRoles);
}

// Empty if the order is the usual one: system first, then user and assistant in turn, tool after
// assistant.
std::string order_fault(const std::vector<text::Message>& messages, size_t index) {
  const auto is_system = [&](size_t i) {
    return messages[i].role == "system" || messages[i].role == "developer";
  };
  const std::string& role = messages[index].role;
  const std::string before = index == 0 ? "" : messages[index - 1].role;
  if (is_system(index)) return index == 0 ? "" : "a " + role + " message after the first place";
  if (index == 0 || is_system(index - 1))
    return role == "user" ? "" : "the chat begins with " + role + ", not with user";
  if (role == "tool" && before != "assistant" && before != "tool")
    return "a tool message after " + before;
  if (role == before && role != "tool") return "two " + role + " messages in a row";
  return "";
}

}  // namespace

void RowParser::read_chat(Value root, Row& row) {
  const auto messages = root.find("messages");
  if (!messages) {
    error("missing_key", root, "$.messages", "the key \"messages\" is missing");
    return;
  }
  if (!messages->is(JsonLine::Kind::kArray)) {
    error("wrong_type", *messages, "$.messages",
          "messages is " + std::string(describe(messages->kind())) +
              ", expected an array of messages");
    return;
  }
  const int64_t errors_before = findings_.errors();
  messages->for_each_item([&](size_t index, Value value) {
    row.content.messages.push_back(read_message(index, value));
    row.text_bytes += static_cast<int64_t>(row.content.messages.back().content.size());
  });
  if (row.content.messages.empty()) {
    error("empty_content", *messages, "$.messages", "messages is empty");
    return;
  }
  // What the turns say together is only known if each of them is sound.
  if (findings_.errors() == errors_before) check_turns(*messages, row.content.messages);
}

text::Message RowParser::read_message(size_t index, Value value) {
  const std::string path = "$.messages[" + std::to_string(index) + "]";
  text::Message message;
  if (!value.is(JsonLine::Kind::kObject)) {
    error("wrong_type", value, path,
          "a message is " + std::string(describe(value.kind())) +
              ", expected {\"role\": …, \"content\": …}");
    return message;
  }
  const auto role = value.find("role"), content = value.find("content");
  if (!role) {
    error("missing_key", value, path + ".role", "the message has no \"role\"",
          value.find("from") ? "ShareGPT's \"from\" and \"value\" are \"role\" and \"content\" here"
                             : "");
  } else if (!role->is(JsonLine::Kind::kString)) {
    error("wrong_type", *role, path + ".role",
          "role is " + std::string(describe(role->kind())) + ", expected a string");
  } else if (message.role = role->string(); !is_known_role(message.role)) {
    const std::string_view close = usual_role(message.role);
    error("unknown_role", *role, path + ".role",
          "the role \"" + message.role.substr(0, 40) +
              "\" is unknown, expected system, developer, user, assistant or tool",
          close.empty() ? "" : "did you mean \"" + std::string(close) + "\"?");
  }
  if (!content) {
    error("missing_key", value, path + ".content", "the message has no \"content\"");
  } else {
    message.content = read_content(path + ".content", *content);
  }
  value.for_each_member([&](std::string_view key, Value member) {
    if (key == "name") {
      if (member.is(JsonLine::Kind::kString)) {
        message.name = member.string();
      } else {
        error("wrong_type", member, path + ".name",
              "name is " + std::string(describe(member.kind())) + ", expected a string");
      }
    } else if (key == "weight") {
      read_weight(path + ".weight", member, message);
    } else if (std::ranges::find(kMessageKeys, key) == std::end(kMessageKeys)) {
      const std::string_view close = base::nearest(key, kMessageKeys);
      warning("unknown_key", member, path + "." + std::string(key.substr(0, 80)),
              "the key \"" + std::string(key.substr(0, 80)) + "\" of a message is not used",
              key == "tool_calls" || key == "function_call"
                  ? "tool calls are not trained: write the call into content"
              : close.empty() ? ""
                              : "did you mean \"" + std::string(close) + "\"?");
    }
  });
  return message;
}

// A string, or a list of {"type": "text", "text": …}, which count as one text.
std::string RowParser::read_content(const std::string& path, Value value) {
  std::string text;
  if (value.is(JsonLine::Kind::kString)) {
    text = value.string();
    scan(path, value, text);
  } else if (value.is(JsonLine::Kind::kArray)) {
    const int64_t errors_before = findings_.errors();
    value.for_each_item([&](size_t index, Value part) {
      const std::string at = path + "[" + std::to_string(index) + "]";
      const auto type = part.is(JsonLine::Kind::kObject) ? part.find("type") : std::nullopt;
      const auto words = part.is(JsonLine::Kind::kObject) ? part.find("text") : std::nullopt;
      if (!type || !type->is(JsonLine::Kind::kString) || type->string() != "text" || !words ||
          !words->is(JsonLine::Kind::kString)) {
        error("wrong_type", part, at,
              "a part of content must be {\"type\": \"text\", \"text\": string}",
              "only text is trained: leave images and audio out");
        return;
      }
      const std::string piece = words->string();
      scan(at + ".text", *words, piece);
      text += piece;
    });
    if (findings_.errors() > errors_before) return text;
  } else {
    error("wrong_type", value, path,
          "content is " + std::string(describe(value.kind())) +
              ", expected a string or a list of text parts",
          value.is(JsonLine::Kind::kNull)
              ? "tool calls are not trained: write the call into content"
              : "");
    return text;
  }
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    error("empty_content", value, path,
          text.empty() ? "content is empty" : "content is only white space");
  }
  return text;
}

void RowParser::read_weight(const std::string& path, Value value, text::Message& message) {
  const double weight = value.is(JsonLine::Kind::kNumber) ? value.number() : -1;
  if (!(weight >= 0 && weight <= 1)) {
    error(
        "weight_invalid", value, path,
        "weight is " + std::string(value.raw().substr(0, 40)) + ", expected a number from 0 to 1");
    return;
  }
  message.weight = weight;
  if (message.role == "assistant") return;
  warning(
      "weight_on_non_assistant", value, path,
      "weight counts on assistant messages only; this one's role is " + message.role.substr(0, 40),
      "to train other messages too, set train_on_inputs");
}

void RowParser::check_turns(Value root, const std::vector<text::Message>& messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string fault = order_fault(messages, i);
    if (fault.empty()) continue;
    warning("role_order", root, "$.messages[" + std::to_string(i) + "].role", fault,
            "usual is: system once and first, then user and assistant in turn; some templates "
            "refuse anything else");
    break;
  }
  const auto is_assistant = [](const text::Message& message) {
    return message.role == "assistant";
  };
  if (std::ranges::none_of(messages, is_assistant)) {
    error("no_assistant_message", root, "$.messages",
          "no message is from the assistant, so nothing is trained");
    return;
  }
  if (!is_assistant(messages.back())) {
    warning("ends_without_assistant", root,
            "$.messages[" + std::to_string(messages.size() - 1) + "]",
            "the chat ends with " + messages.back().role +
                ": what comes after the last answer is not trained");
  }
  if (std::ranges::all_of(messages, [&](const text::Message& message) {
        return !is_assistant(message) || message.weight.value_or(1) == 0;
      })) {
    error("all_weights_zero", root, "$.messages",
          "every assistant message has weight 0, so nothing is trained");
  }
}

}  // namespace dex::data
