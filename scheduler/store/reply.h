#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dex::store {

// What Redis answered, copied out of hiredis. Errors never get here: they are Statuses.
struct Reply {
  enum class Type { kNil, kInteger, kText, kArray };
  Type type = Type::kNil;
  int64_t integer = 0;
  std::string text;  // binary-safe
  std::vector<Reply> elements;

  // Element i, or a nil reply when there are fewer: a missing element reads as "" and 0, so that a
  // short reply becomes a visible wrong value and never a crash.
  [[nodiscard]] const Reply& at(size_t i) const;
  [[nodiscard]] const std::string& str(size_t i) const { return at(i).text; }
  [[nodiscard]] int64_t num(size_t i) const { return at(i).as_int(); }
  [[nodiscard]] int64_t as_int() const;  // an integer, or text that is one; else 0

  // {field, value, field, value, …} as a map.
  [[nodiscard]] std::map<std::string, std::string> fields() const;

  // A value of INFO's "name:value" lines; empty: it has no such line.
  [[nodiscard]] std::string info_field(std::string_view name) const;
};

}  // namespace dex::store
