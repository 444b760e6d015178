#include "scheduler/store/alphabet.h"

#include <algorithm>

namespace dex::store {

namespace {

bool lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

base::Status bad_text(const std::string& field, const std::string& value, const char* rule) {
  return base::invalid_field(field, "'" + shown(value) + "' must be " + rule);
}

}  // namespace

std::string shown(const std::string& value) {
  std::string part = value.substr(0, 255);
  for (char& c : part) {
    if (c < ' ' || c > '~') c = '?';
  }
  return part;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 32 && std::all_of(text.begin(), text.end(), [](char c) {
    return lower_or_digit(c) || c == '-';
  });
}

bool is_store_id(std::string_view text) {
  return !text.empty() && text.size() <= 255 && std::all_of(text.begin(), text.end(), [](char c) {
    return lower_or_digit(c) || c == ':' || c == '.' || c == '_' || c == '-';
  });
}

bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= 255 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

base::Status check_tenant(const std::string& tenant) {
  return check_name("tenant", tenant);
}
base::Status check_name(const std::string& field, const std::string& name) {
  return is_name(name) ? base::Status()
                       : bad_text(field, name, "1 to 32 characters of a-z, 0-9, -");
}
base::Status check_store_id(const std::string& field, const std::string& id) {
  return is_store_id(id) ? base::Status()
                         : bad_text(field, id, "1 to 255 characters of a-z, 0-9, : . _ -");
}
base::Status check_word(const std::string& field, const std::string& word) {
  return is_word(word) ? base::Status()
                       : bad_text(field, word, "1 to 255 printable characters without spaces");
}
base::Status check_request(const RequestKey& request) {
  return request.id.empty() ? base::Status() : check_word("request_id", request.id);
}

}  // namespace dex::store
