#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "scheduler/store/connection.h"
#include "tests/support/temporary_directory.h"

namespace dex::support {

// What Redis answers in its own protocol: an error ("LOADING …") and a text.
inline std::string redis_error(const std::string& words) {
  return "-" + words + "\r\n";
}
inline std::string redis_text(const std::string& text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

// A Redis that answers what a test says, on a Unix socket: one connection after the other, and one
// answer for whatever comes in one piece, as a short command does.
class FakeRedis {
 public:
  // `answer(n)`: to command n of all connections, from 0; called on a thread of its own.
  explicit FakeRedis(std::function<std::string(int)> answer)
      : answer_(std::move(answer)),
        path_((directory_.path() / "s").string()),
        listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
        ::listen(listener_, 8) != 0) {
      throw std::runtime_error("no socket at " + path_);
    }
    thread_ = std::thread([this] { serve(); });
  }
  // Clients have gone by then.
  ~FakeRedis() {
    ::shutdown(listener_, SHUT_RDWR);  // ends accept
    thread_.join();
    ::close(listener_);
  }
  FakeRedis(const FakeRedis&) = delete;
  FakeRedis& operator=(const FakeRedis&) = delete;

  [[nodiscard]] store::RedisAddress address() const { return {path_, "", 0, "", ""}; }
  [[nodiscard]] int commands() const { return commands_; }  // that have come

 private:
  void serve() {
    while (true) {
      const int peer = ::accept(listener_, nullptr, nullptr);
      if (peer < 0) return;
      char buffer[4096];
      while (::read(peer, buffer, sizeof(buffer)) > 0) {
        const std::string reply = answer_(commands_++);
        if (::send(peer, reply.data(), reply.size(), MSG_NOSIGNAL) < 0) break;
      }
      ::close(peer);
    }
  }

  const std::function<std::string(int)> answer_;
  TemporaryDirectory directory_;
  const std::string path_;
  const int listener_;
  std::atomic<int> commands_ = 0;
  std::thread thread_;
};

}  // namespace dex::support
