#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace dex::support {

// A TCP connection on loopback that sends any bytes, for tests of servers. Reads give up after 20
// s.
class RawConnection {
 public:
  explicit RawConnection(int port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawConnection() { ::close(fd_); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }

  // False when the peer took no more.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // What comes until the peer closes (or 20 s of silence: then closed() is false).
  std::string read_all() {
    std::string all;
    char buffer[4096];
    ssize_t got = 0;
    while ((got = recv(fd_, buffer, sizeof buffer, 0)) > 0) all.append(buffer, got);
    closed_ = got == 0 || errno == ECONNRESET;
    return all;
  }
  [[nodiscard]] bool closed() const { return closed_; }

  // Exactly so many bytes, fewer if no more come.
  std::string read_exactly(size_t bytes) {
    std::string all(bytes, '\0');
    size_t got = 0;
    while (got < bytes) {
      const ssize_t more = recv(fd_, all.data() + got, bytes - got, 0);
      if (more <= 0) break;
      got += static_cast<size_t>(more);
    }
    all.resize(got);
    return all;
  }
  // Nothing more will be sent; what comes can still be read.
  void finish_sending() { ::shutdown(fd_, SHUT_WR); }

  // What comes until `end` has come.
  std::string read_until(std::string_view end) {
    std::string all;
    char byte = 0;
    while (all.find(end) == std::string::npos && recv(fd_, &byte, 1, 0) == 1) all += byte;
    return all;
  }

 private:
  const int fd_;
  bool connected_ = false;
  bool closed_ = false;
};

// The whole answer, head and body, to one GET on a connection of its own.
inline std::string http_get(int port, const std::string& path, const std::string& method = "GET") {
  RawConnection connection(port);
  connection.send(method + " " + path +
                  " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  return connection.read_all();
}

// "127.0.0.1:8080" → 8080
inline int port_of(const std::string& address) {
  return std::stoi(address.substr(address.rfind(':') + 1));
}

}  // namespace dex::support
