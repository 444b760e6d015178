#include "scheduler/server/page.h"

#include <charconv>

namespace dex::server {

base::Result<int> page_size(int32_t asked, int standard) {
  if (asked == 0) return standard;
  if (asked >= 1 && asked <= 1000) return static_cast<int>(asked);
  base::Status status(base::Code::kInvalidArgument, "VALUE_OUT_OF_RANGE",
                      "page_size must be between 1 and 1000, got " + std::to_string(asked));
  return std::move(status).with_violation("page_size", "must be between 1 and 1000");
}

std::string page_token(int64_t created_ms, const std::string& id) {
  return std::to_string(created_ms) + "~" + id;
}

base::Result<store::Cursor> parse_page_token(const std::string& token) {
  store::Cursor cursor;
  if (token.empty()) return cursor;
  const size_t mark = token.find('~');
  const char* end = token.data() + std::min(mark, token.size());
  const auto [last, error] = std::from_chars(token.data(), end, cursor.before_ms);
  if (mark == std::string::npos || error != std::errc() || last != end || cursor.before_ms < 0 ||
      mark + 1 == token.size()) {
    return base::invalid_argument("INVALID_CURSOR", "page_token is not one that a list has given")
        .with_violation("page_token", "is not one that a list has given");
  }
  cursor.before_id = token.substr(mark + 1);
  return cursor;
}

base::Result<store::Cursor> list_cursor(
    const std::string& token, const std::string& after,
    const std::function<base::Result<int64_t>(const std::string& id)>& created_ms) {
  if (after.empty()) return parse_page_token(token);
  if (!token.empty())
    return base::bad_field("CONFLICTING_FIELDS", "after", "does not go with page_token");
  const auto found = created_ms(after);
  if (found.status().code() == base::Code::kNotFound) {
    return base::bad_field("INVALID_CURSOR", "after",
                           "names no item of this list: '" + after.substr(0, 64) + "'");
  }
  DEX_RETURN_IF_ERROR(found.status());
  return store::Cursor{*found, after};
}

}  // namespace dex::server
