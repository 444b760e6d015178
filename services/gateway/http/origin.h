#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/gateway/http/exchange.h"

namespace dex::gateway::http {

// Which web pages may use this door. Pages of its own origin always may.
struct OriginPolicy {
  // "https://app.example.com", exact; their pages may read answers (CORS). Empty: CORS is off.
  std::vector<std::string> cors_origins;
  // Whether callers prove who they are. If not, whatever a browser on this machine sends would be
  // obeyed, so foreign pages and names that were made to point here (DNS rebinding) are refused.
  bool authenticated = false;
  // Asked before a body is read, so that only who may call makes the door hold one; empty: nobody.
  std::function<base::Status(const Request&)> admit;
};

// Refuses a list of origins with anything that is not scheme://host[:port]. INVALID_FIELD.
base::Status check_cors_origins(const std::vector<std::string>& origins);

// PERMISSION_DENIED `ORIGIN_NOT_ALLOWED`, when nobody is authenticated: a Host that is not a
// loopback name, or, for requests that change state, an Origin (or Sec-Fetch-Site) of another page
// that is not on the list. Pure.
base::Status check_origin(const OriginPolicy& policy, const Request& request, bool changes_state);

// What an answer to this request says to browsers: Access-Control-Allow-Origin and what may be
// read, if its Origin is on the list; Vary whenever there is a list.
Headers cors_headers(const OriginPolicy& policy, const Request& request);

// The answer to OPTIONS: for a preflight from a listed origin what it may send (api.md §7), for
// others only which methods there are. `methods` as Router::methods.
Reply options_reply(const OriginPolicy& policy, const Request& request,
                    const std::vector<std::string>& methods);

}  // namespace dex::gateway::http
