#include "services/data/code_text.h"

#include <algorithm>
#include <cstdint>

namespace dex::data {

namespace {

constexpr std::string_view kSpaces = " \t\r";
constexpr std::string_view kFence = "```";
constexpr std::string_view kFirst[] = {
    "def ",    "import ",  "return ", "raise ", "fn ", "func ", "else:", "try:",
    "SELECT ", "#include", "#define", "(",      "<",   "{",     "}",     "@"};
constexpr std::string_view kLast[] = {";",  "{",  "}",  "(",  "[",  "\\",
                                      "):", "]:", "}:", "),", "],", "},"};
constexpr std::string_view kInside[] = {
    " = ", " == ", " != ", " += ", " -= ", " := ", " :: ", "->", "=>", "&&", "||", "$(", "${"};
constexpr int64_t kMarkedShare = 4;  // one line in so many

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// "name(…" or "a::b". A single character in brackets is a manual's section or a plural.
bool has_call_or_path(std::string_view line) {
  for (size_t at = 1; at + 1 < line.size(); ++at) {
    if (!is_name(line[at - 1])) continue;
    if (line[at] == '(' && !(at + 2 < line.size() && line[at + 2] == ')')) return true;
    if (line.substr(at).starts_with("::") && at + 2 < line.size() && is_name(line[at + 2]))
      return true;
  }
  return false;
}

bool has_mark(std::string_view line) {
  return std::ranges::any_of(kFirst, [&](auto mark) { return line.starts_with(mark); }) ||
         std::ranges::any_of(kLast, [&](auto mark) { return line.ends_with(mark); }) ||
         std::ranges::any_of(
             kInside, [&](auto mark) { return line.find(mark) != std::string_view::npos; }) ||
         has_call_or_path(line);
}

}  // namespace

bool looks_like_code(std::string_view text) {
  int64_t lines = 0, marked = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t first = line.find_first_not_of(kSpaces);
    if (first == std::string_view::npos) continue;
    line = line.substr(first, line.find_last_not_of(kSpaces) - first + 1);
    if (line.starts_with(kFence)) return true;
    ++lines;
    marked += has_mark(line);
  }
  return lines > 0 && marked * kMarkedShare >= lines;
}

}  // namespace dex::data
