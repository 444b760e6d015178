#include "services/gateway/http/router.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace dex::gateway::http {

namespace {

enum class Kind : std::uint8_t { kLiteral, kParameter, kTail };

Kind kind_of(std::string_view segment) {
  if (!segment.starts_with('{')) return Kind::kLiteral;
  return segment.ends_with("...}") ? Kind::kTail : Kind::kParameter;
}

std::string name_of(std::string_view segment) {
  const size_t end = kind_of(segment) == Kind::kTail ? 4 : 1;
  return std::string(segment.substr(1, segment.size() - 1 - end));
}

std::vector<std::string> split(std::string_view pattern) {
  std::vector<std::string> segments;
  pattern.remove_prefix(1);
  while (true) {
    const auto slash = std::min(pattern.find('/'), pattern.size());
    segments.emplace_back(pattern.substr(0, slash));
    if (slash == pattern.size()) return segments;
    pattern.remove_prefix(slash + 1);
  }
}

bool fits(const std::vector<std::string>& pattern, const std::vector<std::string>& path) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (i >= path.size()) return false;
    const Kind kind = kind_of(pattern[i]);
    if (kind == Kind::kTail) return true;
    if (kind == Kind::kLiteral ? pattern[i] != path[i] : path[i].empty()) return false;
  }
  return pattern.size() == path.size();
}

// Whether `a` is tried before `b`: at the first segment of different kinds the more literal one.
bool more_literal(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (kind_of(a[i]) != kind_of(b[i])) return kind_of(a[i]) < kind_of(b[i]);
  }
  return a.size() > b.size();
}

std::map<std::string, std::string> parameters_of(const std::vector<std::string>& pattern,
                                                 const std::vector<std::string>& path) {
  std::map<std::string, std::string> found;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const Kind kind = kind_of(pattern[i]);
    if (kind == Kind::kLiteral) continue;
    std::string value = path[i];
    for (size_t j = i + 1; kind == Kind::kTail && j < path.size(); ++j) value += "/" + path[j];
    found[name_of(pattern[i])] = std::move(value);
  }
  return found;
}

// GET and what it implies, in the order of RFC 9110.
std::vector<std::string> offered(std::vector<std::string> methods) {
  const bool reads = std::find(methods.begin(), methods.end(), "GET") != methods.end();
  if (reads) methods.insert(methods.begin() + 1, "HEAD");
  methods.emplace_back("OPTIONS");
  return methods;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string shown(const std::vector<std::string>& segments) {
  std::string path;
  for (const auto& segment : segments) path += "/" + segment;
  return path.size() > 200 ? path.substr(0, 200) + "…" : path;
}

}  // namespace

void Router::add(std::string method, std::string pattern, Handler handler) {
  RouteOptions options;
  if (method == "GET") {
    options.body = Body::kNone;
    options.changes_state = false;
  }
  add(std::move(method), std::move(pattern), std::move(handler), options);
}

void Router::add(std::string method, std::string pattern, Handler handler, RouteOptions options) {
  const auto segments = split(pattern);
  auto it = std::find_if(entries_.begin(), entries_.end(),
                         [&](const Entry& entry) { return entry.segments == segments; });
  if (it == entries_.end()) {
    const auto place = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return more_literal(segments, entry.segments);
    });
    it = entries_.insert(place, Entry{segments, {}});
  }
  Route route{method, pattern, std::move(handler), options};
  if (!it->by_method.emplace(method, std::move(route)).second) {
    std::fprintf(stderr, "two handlers for %s %s\n", method.c_str(), pattern.c_str());
    std::abort();
  }
}

void Router::set_fallback(std::string pattern, Handler handler) {
  RouteOptions options;
  options.body = Body::kNone;
  options.changes_state = false;
  options.open = true;
  fallback_.assign(1, Route{"GET", std::move(pattern), std::move(handler), options});
}

const Router::Entry* Router::entry_of(const std::vector<std::string>& segments) const {
  for (const Entry& entry : entries_) {
    if (fits(entry.segments, segments)) return &entry;
  }
  return nullptr;
}

std::vector<std::string> Router::methods(const std::vector<std::string>& segments) const {
  std::vector<std::string> known;
  if (const Entry* entry = entry_of(segments)) {
    for (const auto& [method, _] : entry->by_method) known.push_back(method);
    std::sort(known.begin(), known.end(), [](const std::string& a, const std::string& b) {
      return std::pair(a != "GET", a) < std::pair(b != "GET", b);
    });
  } else if (!fallback_.empty()) {
    known.emplace_back("GET");
  }
  return known.empty() ? known : offered(std::move(known));
}

std::vector<const Router::Route*> Router::routes() const {
  std::vector<const Route*> all;
  for (const Entry& entry : entries_) {
    for (const auto& [_, route] : entry.by_method) all.push_back(&route);
  }
  return all;
}

Router::Match Router::find(std::string_view method,
                           const std::vector<std::string>& segments) const {
  const std::string_view asked = method == "HEAD" ? "GET" : method;
  const Entry* entry = entry_of(segments);
  Match match;
  if (entry != nullptr) {
    const auto it = entry->by_method.find(asked);
    if (it != entry->by_method.end()) {
      match.route = &it->second;
      match.parameters = parameters_of(entry->segments, segments);
      return match;
    }
  } else if (!fallback_.empty() && asked == "GET") {
    match.route = fallback_.data();
    return match;
  }
  if (entry == nullptr && (fallback_.empty() || method != "OPTIONS")) {
    match.refusal = base::not_found(
        "ROUTE_NOT_FOUND", "there is no route " + std::string(method) + " " + shown(segments) +
                               "; the OpenAI-compatible ones are under /v1, every RPC is POST "
                               "/rpc/dex.v1.<Service>/<Rpc>");
    return match;
  }
  match.allow = joined(methods(segments));
  match.refusal = base::Status(base::Code::kUnimplemented, "METHOD_NOT_ALLOWED",
                               shown(segments) + " does not know the method " +
                                   std::string(method.substr(0, 20)) + "; use " + match.allow);
  return match;
}

}  // namespace dex::gateway::http
