#include "scheduler/store/reply.h"

#include <charconv>

namespace dex::store {

const Reply& Reply::at(size_t i) const {
  static const Reply nil;
  return i < elements.size() ? elements[i] : nil;
}

int64_t Reply::as_int() const {
  if (type == Type::kInteger) return integer;
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::map<std::string, std::string> Reply::fields() const {
  std::map<std::string, std::string> map;
  for (size_t i = 0; i + 1 < elements.size(); i += 2) map[elements[i].text] = elements[i + 1].text;
  return map;
}

std::string Reply::info_field(std::string_view name) const {
  const std::string key = "\n" + std::string(name) + ":";  // the first line is a section's
  const size_t at = text.find(key);
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size();
  return text.substr(begin, text.find_first_of("\r\n", begin) - begin);
}

}  // namespace dex::store
