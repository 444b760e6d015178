#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "services/gateway/http/http_metrics.h"
#include "services/gateway/http/router.h"
#include "services/gateway/http/server.h"

namespace dex::gateway::http {

class Connection;

// What all connections of a server share. Held by each of them, and by exchanges, so that what
// comes late from other threads finds an io_context, if one that runs no more.
struct Core {
  Core(Server::Options given, Router routes, monitor::Registry& registry)
      : options(std::move(given)), router(std::move(routes)), metrics(registry) {}

  const Server::Options options;
  const Router router;
  HttpMetrics metrics;
  boost::asio::io_context io;
  std::atomic<bool> draining{false};
  std::atomic<bool> closed{false};  // nothing is posted any more

  std::mutex mutex;
  std::condition_variable idle;
  size_t exchanges = 0;  // guarded by mutex, as all below: alive, answered or not
  size_t answering = 0;  // exchanges whose answer is not complete
  std::unordered_map<Connection*, std::weak_ptr<Connection>> connections;

  void count_exchange(int change) {
    const std::lock_guard lock(mutex);
    exchanges += static_cast<size_t>(change);
    idle.notify_all();
  }
  void count_answering(int change) {
    const std::lock_guard lock(mutex);
    answering += static_cast<size_t>(change);
    idle.notify_all();
  }
};

}  // namespace dex::gateway::http
