#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "services/base/status.h"
#include "services/gateway/http/exchange.h"
#include "services/gateway/http/router.h"

namespace dex::gateway::http {

// The files of the dashboard, read into memory at start: a request looks a name up in a map and can
// reach nothing else on the disk. Immutable afterwards; thread-safe.
class StaticFiles {
 public:
  // Every regular file below `root`, hidden ones and links left out; 64 MiB and 10,000 files at
  // most. FAILED_PRECONDITION when there is no index.html, INVALID_FIELD for a bad folder.
  static base::Result<std::shared_ptr<const StaticFiles>> load(const std::filesystem::path& root);

  // GET of a page or asset: the right type, an ETag and 304, a year of caching for names with a
  // hash
  // ("app-4f3a9c1e.js"), the `.gz` sibling for clients that take gzip, and a
  // Content-Security-Policy that allows this origin alone. Paths without a file answer index.html,
  // which shows the page they name, unless they look like a file or like a route of the API: those
  // are 404.
  [[nodiscard]] Reply answer(const Request& request) const;

 private:
  struct File {
    std::string bytes, gzipped;  // gzipped: empty when there is no sibling
    std::string type, etag;
    bool hashed_name = false;
  };
  [[nodiscard]] const File* find(const Request& request) const;

  std::map<std::string, File, std::less<>> files_;  // by path below the root: "assets/app.js"
};

// Whether a name carries a hash of its content, as Vite writes it: '-' or '.' and eight characters
// of base64url, one of them a digit or upper-case letter, before an extension.
bool has_hash(std::string_view name);
// "text/html; charset=utf-8" for "index.html"; application/octet-stream when unknown.
std::string content_type_of(std::string_view name);

// The fallback of a router: the dashboard, or without one two lines that say what this door is.
void add_pages(Router& router, std::shared_ptr<const StaticFiles> files);

}  // namespace dex::gateway::http
