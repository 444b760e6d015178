#pragma once

#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "services/gateway/http/server.h"
#include "services/gateway/http/sse.h"
#include "tests/support/eventually.h"
#include "tests/support/http_reply.h"

namespace dex::gateway::http {

// An HTTP server with a few routes: POST /echo gives the body back, /upload counts a streamed one,
// GET /held keeps its exchange for the test, /forgotten lets it go, /throws throws.
class HttpServerTest : public ::testing::Test {
 protected:
  void start(Server::Options options = {}) {
    Router router;
    router.add("POST", "/echo", [](const ExchangePtr& exchange) {
      exchange->reply({200, "text/plain", exchange->request().body, {}});
    });
    router.add("GET", "/echo", [](const ExchangePtr& exchange) {
      exchange->reply({200, "text/plain", exchange->request().query_value("q").value_or(""), {}});
    });
    RouteOptions streamed;
    streamed.body = Body::kStream;
    streamed.body_bytes = 10 << 20;
    router.add(
        "POST", "/upload", [](const ExchangePtr& exchange) { count(exchange, 0); }, streamed);
    router.add("GET", "/held", [this](const ExchangePtr& exchange) { hold(exchange); });
    router.add("GET", "/forgotten", [](const ExchangePtr&) {});
    router.add("GET", "/throws", [](const ExchangePtr&) { throw std::runtime_error("no"); });
    RouteOptions open;
    open.body = Body::kNone;
    open.open = true;
    router.add(
        "GET", "/open", [](const ExchangePtr& exchange) { exchange->reply({}); }, open);
    auto started = Server::start(std::move(options), std::move(router), metrics_);
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    server_ = std::move(started).value();
  }
  void TearDown() override {
    const std::lock_guard lock(mutex_);
    held_.clear();
  }

  static void count(const ExchangePtr& exchange, size_t so_far) {
    exchange->read([exchange, so_far](base::Result<std::string> chunk) {
      if (!chunk.ok()) return exchange->reply({400, "text/plain", chunk.status().reason(), {}});
      if (chunk->empty()) return exchange->reply({200, "text/plain", std::to_string(so_far), {}});
      count(exchange, so_far + chunk->size());
    });
  }
  void hold(const ExchangePtr& exchange) {
    exchange->on_gone([this] { ++gone_; });
    exchange->on_drain([this] { ++drained_; });
    const std::lock_guard lock(mutex_);
    held_.push_back(exchange);
  }
  std::vector<ExchangePtr> held(size_t wanted) {
    support::eventually([&] {
      const std::lock_guard lock(mutex_);
      return held_.size() >= wanted;
    });
    const std::lock_guard lock(mutex_);
    return held_;
  }
  support::HttpReply ask(const std::string& method, const std::string& path,
                         const std::string& body = "", const std::string& lines = "") {
    return support::ask(server_->port(), method, path, body, lines);
  }

  monitor::Registry metrics_{"test", "0", "0"};
  std::mutex mutex_;
  std::vector<ExchangePtr> held_;  // guarded by mutex_
  std::atomic<int> gone_{0}, drained_{0};
  std::unique_ptr<Server> server_;
};

}  // namespace dex::gateway::http
