// Requests to the server of health, metrics and, in the gateway, everything else over HTTP.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "services/base/fd.h"
#include "services/monitor/http_server.h"
#include "tests/fuzz/target.h"

namespace dex::fuzz {

namespace {

using monitor::HttpServer;

// Started by the process that gives inputs: threads do not survive a fork.
HttpServer& server() {
  static const auto running = [] {
    HttpServer::Options options;
    options.header_bytes = 1024;
    options.body_bytes = 256;
    auto started = HttpServer::start(options, [](const monitor::HttpRequest& request) {
      require(!request.method.empty(), "a request has a method");
      require(request.path.find('?') == std::string::npos, "a path ends before its query");
      return monitor::HttpResponse{200, "text/plain", request.path + "\n" + request.body, {}};
    });
    require(started.ok(), "a server on loopback");
    return std::move(started).value();
  }();
  return *running;
}

// Everything the server says to these bytes, until it closes.
std::string answer_to(std::string_view bytes) {
  const base::Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server().port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  require(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
          "a server that takes connections");
  // It may close before it has read all: then the rest can't be sent.
  (void)!send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  shutdown(client.get(), SHUT_WR);
  // No port is left in TIME_WAIT, of which thousands of inputs would make too many.
  const linger at_once{1, 0};
  setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  std::string answer;
  char piece[4096];
  for (ssize_t got = 0; (got = recv(client.get(), piece, sizeof piece, 0)) > 0;)
    answer.append(piece, static_cast<size_t>(got));
  return answer;
}

}  // namespace

Corpus corpus() {
  return {{"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
           "GET /a?b=c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
           "POST /v1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
           "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
           "HEAD / HTTP/1.0\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
           "POST / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n",
           "GET / HTTP/1.1\r\nX: " + std::string(4000, 'x') + "\r\n\r\n"},
          {"\r\n", "\r\n\r\n", "\n", "HTTP/1.1", "HTTP/9.9", "Content-Length: ",
           "Transfer-Encoding: chunked\r\n", "Connection: keep-alive\r\n", "Upgrade: websocket\r\n",
           "Expect: 100-continue\r\n", "FFFFFFFFFFFFFFFF\r\n", "0\r\n\r\n", ": ", " ", "%00", "?"}};
}

}  // namespace dex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dex::fuzz;
  const std::string answer = answer_to(view(data, size));
  require(answer.empty() || answer.starts_with("HTTP/1."), "an answer is HTTP");
  if (answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.0 200")) taken();
  return 0;
}
