#include "services/gateway/http/exchange.h"

namespace dex::gateway::http {

namespace {

std::optional<std::string> first(const std::vector<std::pair<std::string, std::string>>& pairs,
                                 std::string_view name) {
  for (const auto& [key, value] : pairs) {
    if (key == name) return value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> Request::header(std::string_view name) const {
  return first(headers, name);
}

std::optional<std::string> Request::query_value(std::string_view name) const {
  return first(query, name);
}

const std::string& Request::parameter(std::string_view name) const {
  static const std::string kNone;
  const auto it = parameters.find(std::string(name));
  return it == parameters.end() ? kNone : it->second;
}

}  // namespace dex::gateway::http
