#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/base/status.h"

namespace dex::monitor {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // "/metrics", as sent: percent-encoding is kept
  std::string query;   // without '?'
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

// A small HTTP/1.1 server that hostile clients can't hold up: every read and write has a time
// limit, headers, bodies and connections a bound. Keep-alive; no TLS, no chunked answers.
// Thread-safe.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  struct Options {
    std::string address =
        "127.0.0.1:0";               // host:port, an IP address or localhost; port 0 = any free
    size_t header_bytes = 16 << 10;  // more: 431
    size_t body_bytes = 0;           // more: 413
    size_t connections = 256;        // open at a time; more are closed at once
    std::chrono::milliseconds read_timeout{10'000};  // for a whole request, idle time before it too
    std::chrono::milliseconds write_timeout{10'000};
  };

  // Listens when it returns. The handler runs on the server's one thread: it must be quick and must
  // not throw.
  static base::Result<std::unique_ptr<HttpServer>> start(Options options, Handler handler);
  ~HttpServer();  // stops, cutting what is open

  [[nodiscard]] const std::string& address() const;  // "127.0.0.1:8080", the real port
  [[nodiscard]] int port() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dex::monitor
