#include "services/data/json_string.h"

#include <cstdint>

namespace dex::data {

namespace {

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

char simple_escape(char letter) {
  switch (letter) {
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return letter;  // quote, backslash, slash
  }
}

bool is_high(uint32_t code) {
  return code >= 0xD800 && code < 0xDC00;
}
bool is_low(uint32_t code) {
  return code >= 0xDC00 && code < 0xE000;
}

}  // namespace

int hex4(std::string_view digits) {
  if (digits.size() < 4) return -1;
  int value = 0;
  for (const char c : digits.substr(0, 4)) {
    int digit = -1;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
    if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

std::string decode_json_string(std::string_view inside,
                               const std::function<void(size_t)>& on_lone_surrogate) {
  std::string out;
  out.reserve(inside.size());
  size_t at = 0;
  while (at < inside.size()) {
    const size_t escape = inside.find('\\', at);
    out.append(
        inside.substr(at, escape == std::string_view::npos ? inside.size() - at : escape - at));
    if (escape == std::string_view::npos) break;
    if (inside[escape + 1] != 'u') {
      out += simple_escape(inside[escape + 1]);
      at = escape + 2;
      continue;
    }
    auto code = static_cast<uint32_t>(hex4(inside.substr(escape + 2)));
    at = escape + 6;
    if (is_high(code) && inside.substr(at, 2) == "\\u") {
      const auto low = static_cast<uint32_t>(hex4(inside.substr(at + 2)));
      if (is_low(low)) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        at += 6;
      }
    }
    if (is_high(code) || is_low(code)) {
      if (on_lone_surrogate) on_lone_surrogate(escape);
      code = 0xFFFD;
    }
    append_utf8(out, code);
  }
  return out;
}

}  // namespace dex::data
