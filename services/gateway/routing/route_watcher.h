#pragma once

#include <grpcpp/channel.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "services/gateway/routing/route_table.h"

namespace dex::gateway {

// Keeps the newest route snapshot of the scheduler. The last one stays, without age limit, when the
// scheduler goes away: inference goes on without the control plane. One thread; connects again
// after 0.2 to 2 s. Thread-safe; the destructor ends the stream and joins.
class RouteWatcher {
 public:
  // on_snapshot is called on the watcher's thread after each new table is in place.
  RouteWatcher(std::shared_ptr<grpc::Channel> scheduler, std::string gateway_id,
               std::function<void(const RouteTable&)> on_snapshot);

  // The current table; null before the first snapshot.
  [[nodiscard]] std::shared_ptr<const RouteTable> table() const;
  // The table is the scheduler's of this moment: the watch that brought it stands. False while the
  // scheduler is away.
  [[nodiscard]] bool current() const { return current_; }

  // Calls `look` once, on the watcher's thread, when a table newer than `known` is in place.
  // nullopt: it is there already, look now.
  using Ticket = uint64_t;
  std::optional<Ticket> on_newer(const RouteTable* known, std::function<void()> look);
  // Drops a waiting call; one that is just running is not waited for.
  void forget(Ticket ticket);

 private:
  void work(const std::stop_token& stop);
  bool watch_once(const std::stop_token& stop);  // true: at least one snapshot came

  const std::shared_ptr<grpc::Channel> scheduler_;
  const std::string gateway_id_;
  const std::function<void(const RouteTable&)> on_snapshot_;
  std::atomic<bool> current_ = false;
  mutable std::mutex mutex_;
  std::shared_ptr<const RouteTable> table_;          // guarded by mutex_
  std::map<Ticket, std::function<void()>> waiting_;  // guarded by mutex_
  Ticket next_ = 0;                                  // guarded by mutex_
  std::jthread thread_;
};

}  // namespace dex::gateway
