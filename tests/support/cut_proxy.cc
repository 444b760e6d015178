#include "tests/support/cut_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <stdexcept>
#include <stop_token>
#include <utility>

namespace dex::support {

namespace {

constexpr size_t kMostHeld_bytes = 1 << 20;  // a direction; then the sender waits

int64_t steady_now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

base::Fd connected_to(const std::string& upstream) {
  base::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto port = static_cast<uint16_t>(std::stoi(upstream.substr(upstream.rfind(':') + 1)));
  const sockaddr_in to = loopback(port);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return {};
  return fd;
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Its close is a reset, as of a peer that crashed.
void reset_at_close(int fd) {
  const linger at_once{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

// One direction of a connection.
struct Flow {
  struct Piece {
    int64_t due_ms = 0;
    std::string bytes;
  };
  std::deque<Piece> pieces;
  size_t held = 0;  // bytes
  bool ended = false;

  [[nodiscard]] bool wants_more() const { return !ended && held < kMostHeld_bytes; }
  [[nodiscard]] bool is_due(int64_t now) const {
    return !pieces.empty() && pieces.front().due_ms <= now;
  }

  // False when the sender is gone for good.
  bool take(int from, int64_t due_ms) {
    std::array<char, 16384> buffer{};
    const ssize_t got = ::recv(from, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) {
      ended = true;
      return true;
    }
    held += static_cast<size_t>(got);
    pieces.push_back({due_ms, std::string(buffer.data(), static_cast<size_t>(got))});
    return true;
  }

  // False when the receiver is gone.
  bool give(int to, int64_t now) {
    while (is_due(now)) {
      std::string& bytes = pieces.front().bytes;
      const ssize_t sent = ::send(to, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN || errno == EINTR;
      held -= static_cast<size_t>(sent);
      bytes.erase(0, static_cast<size_t>(sent));
      if (!bytes.empty()) return true;
      pieces.pop_front();
    }
    return true;
  }
};

// poll ignores negative descriptors; one that is only hung up must not wake it again and again.
pollfd entry(int fd, bool in, bool out) {
  const int events = (in ? POLLIN : 0) | (out ? POLLOUT : 0);
  return {events == 0 ? -1 : fd, static_cast<short>(events), 0};
}

}  // namespace

struct CutProxy::Connection {
  base::Fd client, server;
  Flow up, down;

  [[nodiscard]] std::array<pollfd, 2> wishes(int64_t now) const {
    return {entry(client.get(), up.wants_more(), down.is_due(now)),
            entry(server.get(), down.wants_more(), up.is_due(now))};
  }
  void will_reset() const {
    reset_at_close(client.get());
    reset_at_close(server.get());
  }
  // When the next held piece is due; −1: none waits for its time.
  [[nodiscard]] int64_t next_due_ms(int64_t now) const {
    int64_t next = -1;
    for (const Flow* flow : {&up, &down}) {
      if (flow->pieces.empty() || flow->is_due(now)) continue;
      const int64_t due = flow->pieces.front().due_ms;
      next = next < 0 ? due : std::min(next, due);
    }
    return next;
  }
  // False when the connection is over.
  bool move(bool from_client, bool from_server, int64_t now, int64_t delay_ms) {
    if (from_client && !up.take(client.get(), now + delay_ms)) return false;
    if (from_server && !down.take(server.get(), now + delay_ms)) return false;
    if (!up.give(server.get(), now) || !down.give(client.get(), now)) return false;
    return !(up.ended && up.pieces.empty()) && !(down.ended && down.pieces.empty());
  }
};

CutProxy::CutProxy(std::vector<std::string> upstreams, const std::string& host)
    : upstreams_(std::move(upstreams)),
      listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  sockaddr_in where = loopback(0);
  socklen_t size = sizeof where;
  if (::inet_pton(AF_INET, host.c_str(), &where.sin_addr) != 1 ||
      ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0 ||
      ::listen(listener_.get(), 64) != 0 ||
      ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&where), &size) != 0) {
    throw std::runtime_error("the proxy cannot listen");
  }
  address_ = host + ":" + std::to_string(ntohs(where.sin_port));
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

CutProxy::~CutProxy() {
  thread_.request_stop();
  wake();
}

void CutProxy::slow(int64_t delay_ms) {
  delay_ms_ = delay_ms;
  wake();
}

void CutProxy::set(Mode mode) {
  mode_ = mode;
  wake();
}

void CutProxy::wake() {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void CutProxy::accept_all(std::vector<Connection>& connections) {
  while (true) {
    base::Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client) return;
    if (mode_ == Mode::kCut) {
      reset_at_close(client.get());
      continue;
    }
    send_at_once(client.get());
    for (const std::string& upstream : upstreams_) {
      base::Fd server = connected_to(upstream);
      if (!server) continue;
      send_at_once(server.get());
      connections.push_back({std::move(client), std::move(server), {}, {}});
      break;
    }
  }
}

void CutProxy::run(const std::stop_token& stop) {
  std::vector<Connection> connections;
  uint64_t cuts = 0;
  while (!stop.stop_requested()) {
    const Mode mode = mode_;
    const int64_t now = steady_now_ms();
    if (const uint64_t ordered = cuts_; ordered != cuts) {
      cuts = ordered;
      for (const Connection& connection : connections) connection.will_reset();
      connections.clear();
    }
    std::vector<pollfd> polls = {entry(wake_.get(), true, false)};
    int64_t timeout_ms = -1;
    if (mode != Mode::kPlug) {
      polls.push_back(entry(listener_.get(), true, false));
      for (const Connection& connection : connections) {
        for (const pollfd& wish : connection.wishes(now)) polls.push_back(wish);
        const int64_t due = connection.next_due_ms(now);
        if (due >= 0) timeout_ms = timeout_ms < 0 ? due - now : std::min(timeout_ms, due - now);
      }
    }
    ::poll(polls.data(), polls.size(), static_cast<int>(timeout_ms));
    uint64_t count = 0;
    (void)!::read(wake_.get(), &count, sizeof count);
    // Orders may have come meanwhile: nothing moves under the old ones.
    if (mode == Mode::kPlug || mode_ != mode || cuts_ != cuts) continue;

    const int64_t then = steady_now_ms();
    std::vector<Connection> living;
    for (size_t i = 0; i < connections.size(); ++i) {
      constexpr int kReadable = POLLIN | POLLHUP | POLLERR;
      const bool from_client = (polls[2 + 2 * i].revents & kReadable) != 0;
      const bool from_server = (polls[3 + 2 * i].revents & kReadable) != 0;
      if (connections[i].move(from_client, from_server, then, delay_ms_)) {
        living.push_back(std::move(connections[i]));
      }
    }
    connections = std::move(living);
    accept_all(connections);
  }
}

}  // namespace dex::support
