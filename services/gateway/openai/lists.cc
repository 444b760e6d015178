#include "services/gateway/openai/lists.h"

#include <charconv>

namespace dex::gateway::openai {

namespace {

constexpr int kLongestPage = 1000;

base::Status read_limit(const std::string& text, int& limit) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (whole && limit >= 1 && limit <= kLongestPage) return {};
  return base::bad_field("VALUE_OUT_OF_RANGE", "limit",
                         "must be between 1 and 1000, got '" + text.substr(0, 40) + "'");
}

}  // namespace

base::Result<ListQuery> read_list_query(const http::Request& request,
                                        std::initializer_list<std::string_view> more) {
  ListQuery query;
  std::set<std::string, std::less<>> seen, known{"limit", "after"};
  for (const auto name : more) known.emplace(name);
  for (const auto& [name, value] : request.query) {
    const bool pair = name.starts_with("metadata[") && name.ends_with(']');
    const std::string_view kind = pair ? std::string_view("metadata") : std::string_view(name);
    if (!known.contains(kind) || (!pair && name == "metadata")) {
      const std::string near = nearest(name, known);
      return base::bad_field(
          "UNKNOWN_FIELD", name.substr(0, 100),
          near.empty() ? "is not known" : "is not known; did you mean " + near + "?");
    }
    if (!seen.insert(name).second) {
      return base::bad_field("INVALID_FIELD", name, "comes twice; give it once");
    }
    if (name == "limit") DEX_RETURN_IF_ERROR(read_limit(value, query.limit));
    if (name == "after") query.after = value;
  }
  return query;
}

json list_object(json data, bool has_more) {
  const json first = data.empty() ? json() : data.front().at("id");
  const json last = data.empty() ? json() : data.back().at("id");
  return {{"object", "list"},
          {"data", std::move(data)},
          {"first_id", first},
          {"last_id", last},
          {"has_more", has_more}};
}

json deleted_object(const std::string& id, const std::string& object) {
  return {{"id", id}, {"object", object}, {"deleted", true}};
}

}  // namespace dex::gateway::openai
