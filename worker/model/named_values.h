#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace dex::model {

// A table {{value, "name"}, …}: the words of method.md for an enum's values, both ways.
template <class Table, class E>
std::string_view name_in(const Table& table, E value) {
  for (const auto& [known, text] : table) {
    if (known == value) return text;
  }
  return "?";
}

// Throws "what must be one of …, got …".
template <class Table>
auto parse_in(const Table& table, std::string_view what, std::string_view text) {
  std::string known;
  for (const auto& [value, name] : table) {
    if (name == text) return value;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  throw std::runtime_error("[options] " + std::string(what) + " must be one of " + known +
                           ", got \"" + std::string(text.substr(0, 60)) + "\"");
}

}  // namespace dex::model
