#include "services/gateway/routing/balancer.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "services/rpc/channel.h"

namespace dex::gateway {

std::shared_ptr<Balancer::Peer> Balancer::peer_at(const std::string& address) {
  auto& peer = peers_[address];
  if (!peer) {
    peer = std::make_shared<Peer>();
    peer->address = address;
    peer->channel = rpc::channel(address);
  }
  return peer;
}

base::Result<Balancer::Lease> Balancer::pick(const Target& target,
                                             const std::vector<RouteTable::Worker>& candidates,
                                             std::string_view except) {
  using Rank =
      std::tuple<bool, bool, uint32_t>;  // unreachable, adapter missing, load: less is better
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Peer> best;
  Rank best_rank;
  const size_t first = candidates.empty() ? 0 : turn_++ % candidates.size();
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto& candidate = candidates[(first + i) % candidates.size()];
    if (candidate.address == except) continue;
    auto peer = peer_at(candidate.address);
    const auto state = peer->channel->GetState(/*try_to_connect=*/true);
    const Rank rank{state == GRPC_CHANNEL_TRANSIENT_FAILURE,
                    !target.adapter.empty() && !candidate.holds_adapter,
                    std::max(peer->in_flight.load(), candidate.reported_load)};
    if (!best || rank < best_rank) {
      best = std::move(peer);
      best_rank = rank;
    }
  }
  if (best) return Lease(std::move(best));
  return base::unavailable("NO_WORKER",
                           "no worker serves the base model '" + target.base + "' at the moment");
}

void Balancer::keep_only(const RouteTable& table) {
  std::vector<std::shared_ptr<Peer>> closing;  // ends after the lock
  const std::lock_guard lock(mutex_);
  for (auto it = peers_.begin(); it != peers_.end();) {
    if (table.has_address(it->first)) {
      ++it;
    } else {
      retired_.push_back(std::move(it->second));
      it = peers_.erase(it);
    }
  }
  // A call ends in a gRPC callback, and a channel must not end there (grpc/grpc #37198): so it is
  // kept here until nobody else has it.
  const auto idle = std::partition(retired_.begin(), retired_.end(), [](const auto& peer) {
    return peer.use_count() > 1 || peer->channel.use_count() > 1;
  });
  std::move(idle, retired_.end(), std::back_inserter(closing));
  retired_.erase(idle, retired_.end());
}

}  // namespace dex::gateway
