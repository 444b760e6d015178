#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/gateway/http/exchange.h"

namespace dex::gateway::http {

// Called on the connection's strand; must not block and must not throw. It answers now or later.
using Handler = std::function<void(const ExchangePtr&)>;

enum class Body : std::uint8_t {
  kNone,    // a body is refused with 400 unless it is empty
  kWhole,   // read before the handler is called: request().body, at most 4 MiB (413 above)
  kStream,  // the handler reads it: Exchange::read, at most RouteOptions::body_bytes
};

struct RouteOptions {
  Body body = Body::kWhole;
  uint64_t body_bytes = 4ULL << 20;  // raised for uploads
  // Refused when nobody is authenticated and a page of another origin asks (origin.h).
  bool changes_state = true;
  // Answered under any Host and while the server drains: health, pages without data.
  bool open = false;
};

inline constexpr uint64_t kUploadBytes = (8ULL << 30) + (1U << 20);  // a file and its form's lines

// Which handler answers what. Filled at start, then only read: thread-safe from then on.
//
//   router.add("GET", "/v1/files/{id}/content", handler);
//
// A pattern is a list of segments; `{name}` takes exactly one non-empty segment, decoded (so an id
// may hold an encoded slash), `{name...}` at the end takes one or more. A literal segment wins over
// a `{name}`, a `{name}` over a tail. A trailing slash is another path.
class Router {
 public:
  struct Route {
    std::string method, pattern;
    Handler handler;
    RouteOptions options;
  };

  // Body::kNone and changes_state=false for GET, kWhole and true for the rest. Aborts on a second
  // handler for the same method and pattern: a fault of the program.
  void add(std::string method, std::string pattern, Handler handler);
  void add(std::string method, std::string pattern, Handler handler, RouteOptions options);
  // Answers GETs that no pattern matches (pages of the dashboard: open to all); `pattern` is their
  // name in metrics.
  void set_fallback(std::string pattern, Handler handler);

  struct Match {
    const Route* route = nullptr;  // null: `refusal` says why
    std::map<std::string, std::string> parameters;
    base::Status refusal;  // NOT_FOUND `ROUTE_NOT_FOUND`, or UNIMPLEMENTED with `allow` set: a 405
    std::string allow;     // "GET, HEAD": value of the header Allow; also set for the fallback
  };
  // `segments` as in Request. HEAD finds the GET route.
  [[nodiscard]] Match find(std::string_view method, const std::vector<std::string>& segments) const;
  // The methods that the path knows, for preflights; empty: no such path.
  [[nodiscard]] std::vector<std::string> methods(const std::vector<std::string>& segments) const;
  // Every route but the fallback; they live as long as nothing is added.
  [[nodiscard]] std::vector<const Route*> routes() const;

 private:
  struct Entry {
    std::vector<std::string> segments;
    std::map<std::string, Route, std::less<>> by_method;
  };
  [[nodiscard]] const Entry* entry_of(const std::vector<std::string>& segments) const;

  std::vector<Entry> entries_;   // most literal first
  std::vector<Route> fallback_;  // none or one
};

}  // namespace dex::gateway::http
