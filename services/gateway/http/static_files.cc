#include "services/gateway/http/static_files.h"

#include <algorithm>
#include <cctype>
#include <system_error>
#include <utility>

#include "services/base/files.h"
#include "services/base/sha256.h"
#include "services/gateway/http/http_error.h"

namespace dex::gateway::http {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostBytes = 64 << 20;
constexpr size_t kMostFiles = 10'000;

constexpr const char* kPagePolicy =
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'";

base::Status bad_root(const fs::path& root, const std::string& what) {
  return base::invalid_field("--web-root", "'" + root.string() + "' " + what);
}

// First segments that belong to the API: an unknown path below is no page.
bool is_api(const std::string& segment) {
  constexpr std::string_view kNames[] = {"v1",     "rpc",      "metrics",    "healthz",
                                         "readyz", "tokenize", "detokenize", "tokenizer_info"};
  return std::find(std::begin(kNames), std::end(kNames), segment) != std::end(kNames);
}

bool takes_gzip(const Request& request) {
  const std::string accepted = request.header("accept-encoding").value_or("");
  const auto at = accepted.find("gzip");
  if (at == std::string::npos) return false;
  // "gzip;q=0" says no.
  const auto rest = accepted.substr(at + 4, accepted.find(',', at) - at - 4);
  return rest.find("q=0") == std::string::npos || rest.find("q=0.") != std::string::npos;
}

// If-None-Match: a list of tags, weak or not, or '*'.
bool matches(const std::string& list, const std::string& etag) {
  return list == "*" || list.find(etag) != std::string::npos;
}

void add_safe_headers(Reply& reply) {
  reply.headers.emplace_back("Content-Security-Policy", kPagePolicy);
  reply.headers.emplace_back("X-Frame-Options", "DENY");
  reply.headers.emplace_back("Referrer-Policy", "no-referrer");
  reply.headers.emplace_back("Cross-Origin-Opener-Policy", "same-origin");
  reply.headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
}

base::Status no_such_page(const Request& request) {
  return base::not_found("ROUTE_NOT_FOUND",
                         "there is no route GET " + request.path.substr(0, 200) +
                             "; the OpenAI-compatible ones are under /v1, every RPC is POST "
                             "/rpc/dex.v1.<Service>/<Rpc>");
}

Reply welcome() {
  Reply reply;
  reply.content_type = "text/plain; charset=utf-8";
  reply.body =
      "DEX: fine-tuning as a service. OpenAI-compatible routes under /v1, every RPC in JSON at "
      "POST "
      "/rpc/dex.v1.<Service>/<Rpc>, health at /healthz and /readyz.\n"
      "This server was started without its dashboard (--web-root); how to use it: README.md and "
      "proto/dex/v1 in its source, or `dexctl --help`.\n";
  return reply;
}

}  // namespace

std::string content_type_of(std::string_view name) {
  static const std::map<std::string_view, const char*> kTypes = {
      {"html", "text/html; charset=utf-8"},
      {"js", "text/javascript; charset=utf-8"},
      {"mjs", "text/javascript; charset=utf-8"},
      {"css", "text/css; charset=utf-8"},
      {"json", "application/json"},
      {"map", "application/json"},
      {"webmanifest", "application/manifest+json"},
      {"svg", "image/svg+xml"},
      {"png", "image/png"},
      {"jpg", "image/jpeg"},
      {"webp", "image/webp"},
      {"ico", "image/x-icon"},
      {"woff2", "font/woff2"},
      {"woff", "font/woff"},
      {"wasm", "application/wasm"},
      {"txt", "text/plain; charset=utf-8"},
      {"md", "text/markdown; charset=utf-8"}};
  const auto dot = name.rfind('.');
  const auto it = dot == std::string_view::npos ? kTypes.end() : kTypes.find(name.substr(dot + 1));
  return it == kTypes.end() ? "application/octet-stream" : it->second;
}

bool has_hash(std::string_view name) {
  name = name.substr(name.rfind('/') + 1);
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1)) {
    if (dot < 9 || (name[dot - 9] != '-' && name[dot - 9] != '.')) continue;
    const std::string_view hash = name.substr(dot - 8, 8);
    const bool letters = std::all_of(hash.begin(), hash.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '-' || c == '_';
    });
    // "my-settings.json" is a word, "index-BxY81_kQ.js" is not.
    const bool mixed = std::any_of(hash.begin(), hash.end(), [](unsigned char c) {
      return std::isdigit(c) != 0 || std::isupper(c) != 0;
    });
    if (letters && mixed) return true;
  }
  return false;
}

base::Result<std::shared_ptr<const StaticFiles>> StaticFiles::load(const fs::path& root) {
  std::error_code error;
  if (!fs::is_directory(root, error)) return bad_root(root, "is no folder");
  auto loaded = std::make_shared<StaticFiles>();
  uint64_t total = 0;
  auto it = fs::recursive_directory_iterator(root, error);
  for (; !error && it != fs::end(it); it.increment(error)) {
    const bool hidden = it->path().filename().string().starts_with('.');
    if (hidden && it->is_directory(error)) it.disable_recursion_pending();
    if (hidden || it->is_symlink(error) || !it->is_regular_file(error)) continue;
    DEX_ASSIGN_OR_RETURN(auto bytes, base::read_file(it->path(), static_cast<int64_t>(kMostBytes)));
    total += bytes.size();
    if (total > kMostBytes || loaded->files_.size() >= kMostFiles) {
      return bad_root(root, "holds more than 64 MiB or 10,000 files: is it the built dashboard?");
    }
    File file;
    const std::string name = it->path().lexically_relative(root).generic_string();
    // Weak: the zipped bytes have the same.
    file.etag = "W/\"" + base::sha256_hex(bytes).substr(0, 32) + "\"";
    file.type = content_type_of(name);
    file.hashed_name = has_hash(name);
    file.bytes = std::move(bytes);
    loaded->files_.emplace(name, std::move(file));
  }
  if (error) return bad_root(root, "can't be read: " + error.message());
  for (auto& [name, file] : loaded->files_) {
    const auto sibling = loaded->files_.find(name + ".gz");
    if (sibling != loaded->files_.end()) file.gzipped = sibling->second.bytes;
  }
  if (loaded->files_.count("index.html") == 0) {
    return base::failed_precondition(
        "INVALID_FIELD", "--web-root '" + root.string() +
                             "' holds no index.html: give the folder that the dashboard was built "
                             "into");
  }
  return std::shared_ptr<const StaticFiles>(std::move(loaded));
}

const StaticFiles::File* StaticFiles::find(const Request& request) const {
  std::string name;
  for (const auto& segment : request.segments) name += (name.empty() ? "" : "/") + segment;
  const auto it = files_.find(name.empty() ? "index.html" : name);
  if (it != files_.end()) return &it->second;
  const bool is_file = request.segments.back().find('.') != std::string::npos;
  if (is_file || is_api(request.segments.front())) return nullptr;
  return &files_.find("index.html")->second;
}

Reply StaticFiles::answer(const Request& request) const {
  const File* file = find(request);
  if (file == nullptr) return error_reply(no_such_page(request), request.request_id);
  Reply reply;
  reply.headers = {
      {"ETag", file->etag},
      {"Vary", "Accept-Encoding"},
      {"Cache-Control", file->hashed_name ? "public, max-age=31536000, immutable" : "no-cache"}};
  add_safe_headers(reply);
  if (matches(request.header("if-none-match").value_or(""), file->etag)) {
    reply.status = 304;
    reply.content_type.clear();
    return reply;
  }
  reply.content_type = file->type;
  const bool zipped = !file->gzipped.empty() && takes_gzip(request);
  if (zipped) reply.headers.emplace_back("Content-Encoding", "gzip");
  reply.body = zipped ? file->gzipped : file->bytes;
  return reply;
}

void add_pages(Router& router, std::shared_ptr<const StaticFiles> files) {
  if (!files) {
    RouteOptions options;
    options.body = Body::kNone;
    options.changes_state = false;
    options.open = true;
    router.add(
        "GET", "/", [](const ExchangePtr& exchange) { exchange->reply(welcome()); }, options);
    return;
  }
  router.set_fallback("/{page}", [files = std::move(files)](const ExchangePtr& exchange) {
    exchange->reply(files->answer(exchange->request()));
  });
}

}  // namespace dex::gateway::http
