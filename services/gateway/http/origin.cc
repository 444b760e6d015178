#include "services/gateway/http/origin.h"

#include <algorithm>
#include <cctype>

#include "services/auth/listen_address.h"

namespace dex::gateway::http {

namespace {

std::string lowered(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return lower;
}

bool is_listed(const OriginPolicy& policy, std::string_view origin) {
  return std::find(policy.cors_origins.begin(), policy.cors_origins.end(), lowered(origin)) !=
         policy.cors_origins.end();
}

// "localhost:8080" → loopback? A Host may come without a port.
bool is_loopback_host(std::string_view host) {
  if (lowered(host).starts_with("unix")) return false;  // to is_loopback the name of a socket
  const bool has_port = !host.ends_with(']') && host.rfind(':') != std::string_view::npos;
  return auth::is_loopback(lowered(host) + (has_port ? "" : ":80"));
}

base::Status refused(const std::string& what) {
  return {base::Code::kPermissionDenied, "ORIGIN_NOT_ALLOWED", what};
}

}  // namespace

base::Status check_cors_origins(const std::vector<std::string>& origins) {
  for (const auto& origin : origins) {
    const bool web = origin.starts_with("http://") || origin.starts_with("https://");
    const auto host = web ? std::string_view(origin).substr(origin.find("//") + 2) : "";
    const bool plain = !host.empty() && std::all_of(host.begin(), host.end(), [](unsigned char c) {
      return std::isdigit(c) != 0 || std::islower(c) != 0 ||
             std::string_view("-._:[]").find(static_cast<char>(c)) != std::string_view::npos;
    });
    if (!plain) {
      return base::invalid_field("--cors-origin",
                                 "'" + origin +
                                     "' is no origin: write scheme://host or scheme://host:port in "
                                     "lower case, such as https://app.example.com, without a path");
    }
  }
  return {};
}

base::Status check_origin(const OriginPolicy& policy, const Request& request, bool changes_state) {
  if (policy.authenticated) return {};
  const std::string host = request.header("host").value_or("");
  if (!host.empty() && !is_loopback_host(host)) {
    return refused("the name '" + host.substr(0, 100) +
                   "' is not one of this machine: without authentication this server answers under "
                   "localhost, 127.0.0.1 and [::1] alone");
  }
  if (!changes_state) return {};
  const auto origin = request.header("origin");
  if (origin) {
    const bool own = lowered(*origin) == "http://" + lowered(host);
    if (own || is_listed(policy, *origin)) return {};
    return refused("a page of '" + origin->substr(0, 100) +
                   "' may change nothing here: start the gateway with --cors-origin to allow it");
  }
  // Browsers leave Origin out of some requests, but say where they come from.
  const std::string site = request.header("sec-fetch-site").value_or("none");
  if (site == "cross-site" || site == "same-site") {
    return refused("a page of another site may change nothing here");
  }
  return {};
}

Headers cors_headers(const OriginPolicy& policy, const Request& request) {
  if (policy.cors_origins.empty()) return {};
  Headers headers = {{"Vary", "Origin"}};
  const auto origin = request.header("origin");
  if (!origin || !is_listed(policy, *origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", lowered(*origin));
  headers.emplace_back("Access-Control-Expose-Headers",
                       "x-request-id, x-should-retry, retry-after-ms, retry-after, dex-replayed");
  return headers;
}

Reply options_reply(const OriginPolicy& policy, const Request& request,
                    const std::vector<std::string>& methods) {
  std::string list;
  for (const auto& method : methods) list += (list.empty() ? "" : ", ") + method;
  Reply reply;
  reply.status = 204;
  reply.content_type.clear();
  reply.headers = {{"Allow", list}};
  const auto origin = request.header("origin");
  if (!origin || !is_listed(policy, *origin)) return reply;
  if (!request.header("access-control-request-method")) return reply;
  reply.headers.emplace_back("Access-Control-Allow-Methods", list);
  reply.headers.emplace_back("Access-Control-Allow-Headers",
                             "authorization, content-type, idempotency-key, last-event-id");
  reply.headers.emplace_back("Access-Control-Max-Age", "600");
  return reply;
}

}  // namespace dex::gateway::http
