#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "services/base/fd.h"

namespace dex::support {

// A relay between two of our processes, which a test can cut, plug or slow down. A new connection
// goes to the first of the upstreams that takes it, as a service name before several replicas does.
// One thread moves the bytes; everything here is thread-safe and returns at once.
class CutProxy {
 public:
  // "127.0.0.1:port" each; they may start later, and come and go. Listens on any free port of
  // `host`, an address of this machine.
  explicit CutProxy(std::vector<std::string> upstreams, const std::string& host = "127.0.0.1");
  ~CutProxy();
  CutProxy(const CutProxy&) = delete;
  CutProxy& operator=(const CutProxy&) = delete;

  [[nodiscard]] const std::string& address() const { return address_; }

  // Hands everything on; what a plugged link has held comes first.
  void pass() { set(Mode::kPass); }
  // Breaks every connection, and each new one, until pass().
  void cut() {
    ++cuts_;
    set(Mode::kCut);
  }
  // A black hole: connections stay, new ones are made, bytes are taken, nothing arrives until
  // pass().
  void plug() { set(Mode::kPlug); }
  // From now on every byte takes this much longer, each way.
  void slow(int64_t delay_ms);

 private:
  enum class Mode { kPass, kCut, kPlug };
  struct Connection;

  void set(Mode mode);
  void wake();
  void run(const std::stop_token& stop);
  void accept_all(std::vector<Connection>& connections);

  const std::vector<std::string> upstreams_;
  std::atomic<Mode> mode_ = Mode::kPass;
  std::atomic<uint64_t> cuts_ = 0;  // so that a cut which is over at once breaks what it should
  std::atomic<int64_t> delay_ms_ = 0;
  base::Fd listener_, wake_;
  std::string address_;
  std::jthread thread_;
};

}  // namespace dex::support
