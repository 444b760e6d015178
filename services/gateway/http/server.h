#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "services/base/status.h"
#include "services/gateway/http/origin.h"
#include "services/gateway/http/router.h"
#include "services/monitor/registry.h"

namespace dex::gateway::http {

// An HTTP/1.1 server that hostile clients can't hold up: everything that is read, written or waited
// for has a time limit and a bound. Keep-alive and pipelining; no TLS. A few threads serve all
// connections; handlers answer through Exchange. Thread-safe.
class Server {
 public:
  struct Options {
    std::string address =
        "127.0.0.1:0";  // host:port, an IP address or localhost; port 0 = any free
    int threads = 2;
    size_t connections = 4096;       // open at a time; more are closed at once
    size_t header_bytes = 16 << 10;  // more: 431
    size_t waiting_bytes = 8 << 20;  // answered, not yet taken by the client; more: cut
    std::chrono::milliseconds header_timeout{10'000};  // from a head's first byte to its last
    std::chrono::milliseconds idle_timeout{75'000};    // between requests
    std::chrono::milliseconds body_timeout{60'000};    // for the whole of a body ≤ 4 MiB
    std::chrono::milliseconds upload_idle{30'000};     // between two pieces of a streamed body
    std::chrono::milliseconds write_timeout{30'000};   // a client that takes nothing
    OriginPolicy origins;
  };

  // Listens when it returns. `metrics` outlives the server.
  static base::Result<std::unique_ptr<Server>> start(Options options, Router router,
                                                     monitor::Registry& metrics);
  // As close(); then waits for the exchanges that handlers still hold, 10 s at most.
  ~Server();

  [[nodiscard]] const std::string& address() const;  // with the real port
  [[nodiscard]] int port() const;

  // From now on: routes that are not open answer 503 `SERVER_DRAINING`, idle connections close, the
  // others after their answer, and exchanges hear of it (Exchange::on_drain). It goes on listening,
  // so that /readyz can say so. Returns at once.
  void drain();
  // Waits until no answer is open, until then at most. False: there still are some.
  bool wait_until_idle(std::chrono::steady_clock::time_point deadline);
  // Ends listening and cuts every connection. Returns at once; may be called again.
  void close();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dex::gateway::http
