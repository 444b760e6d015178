#include "services/gateway/openai/logprobs.h"

#include <charconv>

namespace dex::gateway::openai {

namespace {

constexpr std::string_view kBytes = "bytes:";
constexpr std::string_view kTokenId = "token_id:";

bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

// Without a tokenizer tokens have no names; an object's keys must differ.
template <typename Entry>
std::string name_of(const Entry& entry) {
  return entry.token().empty() ? std::string(kTokenId) + std::to_string(entry.token_id())
                               : entry.token();
}

json bytes_json(const std::string& name) {
  const auto bytes = token_bytes(name);
  if (!bytes) return nullptr;
  json list = json::array();
  for (const char byte : *bytes) list.push_back(static_cast<unsigned char>(byte));
  return list;
}

template <typename Entry>
json chat_entry(const Entry& entry) {
  const std::string name = name_of(entry);
  return {{"token", name}, {"bytes", bytes_json(name)}, {"logprob", entry.logprob()}};
}

}  // namespace

std::optional<std::string> token_bytes(std::string_view name) {
  if (name.starts_with(kTokenId)) return std::nullopt;
  const std::string_view escapes = name.substr(std::min(kBytes.size(), name.size()));
  if (!name.starts_with(kBytes) || escapes.empty() || escapes.size() % 4 != 0)
    return std::string(name);
  std::string bytes;
  for (size_t at = 0; at < escapes.size(); at += 4) {
    uint8_t byte = 0;
    const char* digits = escapes.data() + at + 2;
    const auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
    const bool escape = escapes.substr(at, 2) == "\\x" && error == std::errc() && end == digits + 2;
    if (!escape) return std::string(name);  // a text that only begins like one
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

int64_t TextPosition::take(std::string_view bytes) {
  const bool inside = !bytes.empty() && continues(bytes.front()) && characters > 0;
  const int64_t offset = inside ? characters - 1 : characters;
  for (const char byte : bytes) characters += continues(byte) ? 0 : 1;
  return offset;
}

json completion_logprobs(const LogprobList& entries, TextPosition& position) {
  json tokens = json::array(), chosen = json::array();
  json tops = json::array(), offsets = json::array();
  for (const auto& entry : entries) {
    const std::string name = name_of(entry);
    tokens.push_back(name);
    offsets.push_back(position.take(token_bytes(name).value_or("")));
    if (!entry.has_logprob()) {
      chosen.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    chosen.push_back(entry.logprob());
    json top = json::object();
    for (const auto& other : entry.top()) top[name_of(other)] = other.logprob();
    top[name] = entry.logprob();
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(chosen)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

json chat_logprobs(const LogprobList& entries, int top) {
  json content = json::array();
  for (const auto& entry : entries) {
    json item = chat_entry(entry);
    item["top_logprobs"] = json::array();
    if (top > 0) {
      for (const auto& other : entry.top()) item["top_logprobs"].push_back(chat_entry(other));
    }
    content.push_back(std::move(item));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

}  // namespace dex::gateway::openai
