#pragma once

#include <grpcpp/channel.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "services/gateway/routing/route_table.h"

namespace dex::gateway {

// The gateway's own view of the workers: a channel to each, and how many calls it has there now.
// Thread-safe; never blocks.
class Balancer {
  struct Peer {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
    std::atomic<uint32_t> in_flight{0};
  };

 public:
  // A call's place at a worker; counts as load until it is destroyed.
  class Lease {
   public:
    explicit Lease(std::shared_ptr<Peer> peer) : peer_(std::move(peer)) { ++peer_->in_flight; }
    ~Lease() {
      if (peer_) --peer_->in_flight;
    }
    Lease(Lease&&) = default;
    Lease& operator=(Lease&&) = delete;

    [[nodiscard]] const std::string& address() const { return peer_->address; }
    [[nodiscard]] const std::shared_ptr<grpc::Channel>& channel() const { return peer_->channel; }

   private:
    std::shared_ptr<Peer> peer_;
  };

  // The best of the candidates: one that can be reached as far as its channel knows, then one that
  // holds the adapter, then the least loaded; equal ones in turn. Never the one at address
  // `except`. UNAVAILABLE `NO_WORKER` when none is left.
  base::Result<Lease> pick(const Target& target, const std::vector<RouteTable::Worker>& candidates,
                           std::string_view except = {});

  // Closes the channels to workers that are no longer routed to, once their last call has ended.
  // Not to be called from a gRPC callback: channels die here.
  void keep_only(const RouteTable& table);

 private:
  std::shared_ptr<Peer> peer_at(const std::string& address);

  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Peer>> peers_;  // guarded by mutex_, by address
  std::vector<std::shared_ptr<Peer>> retired_;  // guarded by mutex_; still have calls
  size_t turn_ = 0;                             // guarded by mutex_
};

}  // namespace dex::gateway
