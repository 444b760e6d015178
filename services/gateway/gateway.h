#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "services/base/status.h"

namespace dex::gateway {

// The whole gateway in one object: gRPC door, HTTP door, monitor port, routes from the scheduler.
// main.cc runs one; tests run several in a process. Thread-safe.
class Gateway {
 public:
  struct Options {
    std::string scheduler;                       // its address for gateways; may not answer yet
    std::string listen = "127.0.0.1:50051";      // gRPC
    std::string http_listen = "127.0.0.1:8080";  // HTTP
    // Web pages of these origins may use the HTTP door ("https://app.example.com"); none: CORS is
    // off.
    std::vector<std::string> cors_origins;
    std::filesystem::path web_root;  // the built dashboard; empty: none
    int http_threads = 2;
    std::string metrics_listen = "127.0.0.1:0";  // /metrics /healthz /readyz alone
    // How long a generation for a model that no worker serves waits for one to appear in the
    // routes.
    std::chrono::milliseconds route_patience{1000};
    // Whether callers must show an API key. Without it every caller is this machine's operator, and
    // the addresses must be on loopback.
    bool authenticate = false;
    uint32_t requests_per_minute = 0;              // of a tenant at this gateway; 0: no limit
    std::chrono::milliseconds use_period{15'000};  // between reports of what was used
    std::filesystem::path audit_log;  // JSON lines, one a call that changes something; empty: none
    std::string version = "0";
    std::string commit = "unknown";
  };

  // Listens on all three addresses when it returns. Refuses addresses off loopback where callers
  // are not authenticated, as on the monitor port always. Needs no scheduler to start; until the
  // first routes come /readyz answers 503 and generations UNAVAILABLE.
  static base::Result<std::unique_ptr<Gateway>> start(const Options& options);
  ~Gateway();  // as stop(), with half a second

  [[nodiscard]] const std::string& grpc_address() const;  // with the real ports
  [[nodiscard]] const std::string& http_address() const;
  [[nodiscard]] const std::string& metrics_address() const;

  // Drains (jobs.md §9): health NOT_SERVING, new calls and requests refused, unary calls and
  // generations end, other streams end with `SERVER_DRAINING`; what is left after `grace` is cut.
  // Blocks at most about that. The HTTP door goes on saying so at /readyz until the end.
  void stop(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit Gateway(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dex::gateway
