#include "tests/unit/proto/compare.h"

#include <map>
#include <set>

namespace dex::contract {

namespace {

// "a.b.c = 8 optional int64" → "a.b.c" and "8 optional int64". A line about what is reserved has no
// " = " and is all key.
struct Line {
  std::string key, value;
  [[nodiscard]] std::string owner() const { return key.substr(0, key.rfind('.')); }
  [[nodiscard]] std::string name() const { return key.substr(key.rfind('.') + 1); }
  [[nodiscard]] std::string number() const { return value.substr(0, value.find(' ')); }
  // A field or an enum value: its value starts with a number.
  [[nodiscard]] bool numbered() const {
    return !value.empty() && number().find_first_not_of("-0123456789") == std::string::npos;
  }
};

Line parse(const std::string& text) {
  const size_t mark = text.find(" = ");
  if (mark == std::string::npos) return {text, ""};
  return {text.substr(0, mark), text.substr(mark + 3)};
}

// What a promised line that is gone says to its reader; "" when it went the right way.
std::string fault_of_loss(const Line& lost, const std::map<std::string, std::string>& now,
                          const std::map<std::string, std::string>& by_number) {
  if (lost.value.empty()) return lost.key + ": is no longer reserved";
  if (!lost.numbered()) return lost.key + ": the " + lost.value + " is gone";
  const std::string number = lost.owner() + " reserved " + lost.number();
  const std::string name = lost.owner() + " reserved " + lost.name();
  const auto heir = by_number.find(lost.owner() + " " + lost.number());
  if (heir != by_number.end())
    return lost.key + ": its number " + lost.number() + " is " + heir->second + " now";
  if (now.contains(number) && now.contains(name)) return "";
  return lost.key + ": is gone; reserve " + (now.contains(number) ? "" : lost.number()) +
         (now.contains(number) || now.contains(name) ? "" : " and ") +
         (now.contains(name) ? "" : "\"" + lost.name() + "\"");
}

}  // namespace

Comparison compare(const Listing& promised, const Listing& now) {
  std::map<std::string, std::string> values;     // key → value
  std::map<std::string, std::string> by_number;  // "owner number" → key
  for (const std::string& text : now) {
    const Line line = parse(text);
    values[line.key] = line.value;
    if (line.numbered()) by_number[line.owner() + " " + line.number()] = line.key;
  }
  Comparison found;
  std::set<std::string> known;
  for (const std::string& text : promised) {
    const Line line = parse(text);
    known.insert(line.key);
    const auto current = values.find(line.key);
    if (current == values.end()) {
      const std::string fault = fault_of_loss(line, values, by_number);
      if (!fault.empty()) found.breaks.push_back(fault);
    } else if (current->second != line.value) {
      found.breaks.push_back(line.key + ": was '" + line.value + "', is '" + current->second + "'");
    }
  }
  for (const std::string& text : now) {
    if (!known.contains(parse(text).key)) found.additions.push_back(text);
  }
  return found;
}

}  // namespace dex::contract
