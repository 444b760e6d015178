#include "deploy/standalone/http_probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <charconv>

#include "services/base/errno_status.h"
#include "services/base/fd.h"

namespace dex::standalone {

namespace {

base::Result<sockaddr_in> parse(const std::string& address) {
  const auto colon = address.rfind(':');
  sockaddr_in result{};
  result.sin_family = AF_INET;
  uint16_t port = 0;
  if (colon == std::string::npos ||
      std::from_chars(address.data() + colon + 1, address.data() + address.size(), port).ec !=
          std::errc() ||
      inet_pton(AF_INET, address.substr(0, colon).c_str(), &result.sin_addr) != 1) {
    return base::invalid_argument("INVALID_FIELD",
                                  "'" + address + "' is no address; 127.0.0.1:9100 would be right");
  }
  result.sin_port = htons(port);
  return result;
}

}  // namespace

base::Status http_ok(const std::string& address, const std::string& path, int64_t timeout_ms) {
  DEX_ASSIGN_OR_RETURN(const auto target, parse(address));
  const base::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return base::errno_status(errno, "cannot make a socket");
  const timeval limit{timeout_ms / 1000, (timeout_ms % 1000) * 1000};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target) != 0) {
    return base::errno_status(errno, "cannot connect to " + address);
  }
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\nConnection: close\r\n\r\n";
  if (send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return base::errno_status(errno, "cannot ask " + address);
  }
  std::string answer;
  char buffer[2048];
  while (answer.size() < 16'384) {
    const ssize_t got = recv(fd.get(), buffer, sizeof buffer, 0);
    if (got <= 0) break;
    answer.append(buffer, static_cast<size_t>(got));
  }
  if (answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.0 200")) return {};
  const auto body = answer.find("\r\n\r\n");
  return base::unavailable("NOT_READY", body == std::string::npos ? "no answer from " + address
                                                                  : answer.substr(body + 4, 300));
}

}  // namespace dex::standalone
