#include "services/gateway/http/head.h"

#include <algorithm>
#include <array>
#include <boost/beast/http/status.hpp>
#include <cctype>
#include <cstdio>
#include <ctime>

namespace dex::gateway::http {

namespace {

std::string_view reason_phrase(int status) {
  if (status == 499) return "Client Closed Request";
  const auto known = boost::beast::http::int_to_status(static_cast<unsigned>(status));
  const auto text = boost::beast::http::obsolete_reason(known);
  return {text.data(), text.size()};
}

bool is_token(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

bool is_field_value(std::string_view value) {
  return std::none_of(value.begin(), value.end(),
                      [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; });
}

void add_header(std::string& text, std::string_view name, std::string_view value) {
  if (!is_token(name) || !is_field_value(value)) return;
  text.append(name).append(": ").append(value).append("\r\n");
}

bool names(const Headers& headers, std::string_view wanted) {
  return std::any_of(headers.begin(), headers.end(), [&](const auto& header) {
    return std::equal(
        header.first.begin(), header.first.end(), wanted.begin(), wanted.end(),
        [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
  });
}

}  // namespace

std::string http_date(std::chrono::system_clock::time_point time) {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%s, %02d %s %d %02d:%02d:%02d GMT", kDays[utc.tm_wday],
                utc.tm_mday, kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min,
                utc.tm_sec);
  return text.data();
}

std::string chunk_head(size_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%zx\r\n", bytes);
  return text.data();
}

std::string to_text(const Head& head, std::chrono::system_clock::time_point now) {
  std::string text = head.http10 ? "HTTP/1.0 " : "HTTP/1.1 ";
  text.append(std::to_string(head.status)).append(" ").append(reason_phrase(head.status));
  text += "\r\n";
  add_header(text, "Date", http_date(now));
  add_header(text, "Connection", head.keep_alive ? "keep-alive" : "close");
  if (!head.content_type.empty()) add_header(text, "Content-Type", head.content_type);
  if (head.length) add_header(text, "Content-Length", std::to_string(*head.length));
  if (head.chunked) add_header(text, "Transfer-Encoding", "chunked");
  add_header(text, "X-Content-Type-Options", "nosniff");
  if (!names(head.headers, "cache-control")) add_header(text, "Cache-Control", "no-store");
  for (const auto& [name, value] : head.headers) add_header(text, name, value);
  text += "\r\n";
  return text;
}

}  // namespace dex::gateway::http
