#include "services/gateway/http/target.h"

#include <algorithm>
#include <cstdint>

namespace dex::gateway::http {

namespace {

base::Status bad_target(const std::string& what) {
  return base::invalid_field("path", "the request's path or query " + what);
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The bytes of one character at the front of `bytes`; 0: there is none.
size_t utf8_length(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (at(0) < 0x80) return 1;
  const size_t length = at(0) >= 0xF0 ? 4 : at(0) >= 0xE0 ? 3 : at(0) >= 0xC2 ? 2 : 0;
  if (length == 0 || at(0) > 0xF4 || bytes.size() < length) return 0;
  uint32_t point = at(0) & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0U) != 0x80U) return 0;
    point = point << 6U | (at(i) & 0x3FU);
  }
  const bool overlong = (length == 3 && point < 0x800) || (length == 4 && point < 0x10000);
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  return overlong || surrogate || point > 0x10FFFF ? 0 : length;
}

base::Status parse_query(std::string_view text, Target& target) {
  while (!text.empty()) {
    const auto end = std::min(text.find('&'), text.size());
    const std::string_view pair = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (pair.empty()) continue;
    const auto equals = std::min(pair.find('='), pair.size());
    DEX_ASSIGN_OR_RETURN(auto name, percent_decode(pair.substr(0, equals), true));
    const auto rest = equals == pair.size() ? std::string_view() : pair.substr(equals + 1);
    DEX_ASSIGN_OR_RETURN(auto value, percent_decode(rest, true));
    target.query.emplace_back(std::move(name), std::move(value));
  }
  return {};
}

}  // namespace

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t length = utf8_length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

base::Result<std::string> percent_decode(std::string_view text, bool plus_is_space) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += plus_is_space && text[i] == '+' ? ' ' : text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) {
      return bad_target("has a '%' without two hexadecimal digits; write %25 for the sign itself");
    }
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  const bool control = std::any_of(decoded.begin(), decoded.end(),
                                   [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (control) return bad_target("holds control characters");
  if (!is_utf8(decoded)) return bad_target("is not UTF-8");
  return decoded;
}

base::Result<Target> parse_target(std::string_view target) {
  // The absolute form, for proxies (RFC 9112 §3.2.2): the Host header has been checked anyway.
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    const auto slash = target.find_first_of("/?", scheme.size());
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
    break;
  }
  if (target.empty() || target.front() != '/') {
    return bad_target("must start with '/', such as /v1/models");
  }
  target = target.substr(0, target.find('#'));
  const auto question = std::min(target.find('?'), target.size());
  Target parsed;
  parsed.path = std::string(target.substr(0, question));
  std::string_view rest = std::string_view(parsed.path).substr(1);
  while (true) {
    const auto slash = std::min(rest.find('/'), rest.size());
    DEX_ASSIGN_OR_RETURN(auto segment, percent_decode(rest.substr(0, slash), false));
    if (segment == "." || segment == "..") return bad_target("has a segment '" + segment + "'");
    parsed.segments.push_back(std::move(segment));
    if (slash == rest.size()) break;
    rest.remove_prefix(slash + 1);
  }
  if (question < target.size()) {
    DEX_RETURN_IF_ERROR(parse_query(target.substr(question + 1), parsed));
  }
  return parsed;
}

}  // namespace dex::gateway::http
