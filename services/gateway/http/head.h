#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "services/gateway/http/exchange.h"

namespace dex::gateway::http {

// What goes before a body.
struct Head {
  int status = 200;
  bool http10 = false;             // the client speaks 1.0: no chunks
  bool keep_alive = true;          // else Connection: close
  bool chunked = false;            // Transfer-Encoding
  std::optional<uint64_t> length;  // Content-Length
  std::string content_type;        // empty: none
  Headers headers;
};

// The lines of a response's head with the empty line at its end. Header lines with a name that is
// no token, or control characters in the value, are left out: a value from a request can't end a
// line and start another (response splitting). Adds Date, X-Content-Type-Options, and
// Cache-Control: no-store where nothing else is said. Pure.
std::string to_text(const Head& head, std::chrono::system_clock::time_point now);

// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string http_date(std::chrono::system_clock::time_point time);

// Text and bytes around a chunk of the chunked coding: "1f4\r\n"; the end mark is "0\r\n\r\n".
std::string chunk_head(size_t bytes);

}  // namespace dex::gateway::http
