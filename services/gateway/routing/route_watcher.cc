#include "services/gateway/routing/route_watcher.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <condition_variable>

#include "dex/internal/v1/routes.grpc.pb.h"

namespace dex::gateway {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShortestPause{200};
constexpr milliseconds kLongestPause{2000};

void pause(const std::stop_token& stop, milliseconds time) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, time, [] { return false; });
}

}  // namespace

RouteWatcher::RouteWatcher(std::shared_ptr<grpc::Channel> scheduler, std::string gateway_id,
                           std::function<void(const RouteTable&)> on_snapshot)
    : scheduler_(std::move(scheduler)),
      gateway_id_(std::move(gateway_id)),
      on_snapshot_(std::move(on_snapshot)),
      thread_([this](const std::stop_token& stop) { work(stop); }) {}

std::shared_ptr<const RouteTable> RouteWatcher::table() const {
  const std::lock_guard lock(mutex_);
  return table_;
}

std::optional<RouteWatcher::Ticket> RouteWatcher::on_newer(const RouteTable* known,
                                                           std::function<void()> look) {
  const std::lock_guard lock(mutex_);
  if (table_.get() != known) return std::nullopt;
  waiting_.emplace(++next_, std::move(look));
  return next_;
}

void RouteWatcher::forget(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  waiting_.erase(ticket);
}

void RouteWatcher::work(const std::stop_token& stop) {
  milliseconds wait = kShortestPause;
  while (!stop.stop_requested()) {
    if (watch_once(stop)) wait = kShortestPause;
    pause(stop, wait);
    wait = std::min(wait * 2, kLongestPause);
  }
}

bool RouteWatcher::watch_once(const std::stop_token& stop) {
  grpc::ClientContext context;  // no deadline: it is a watch; keep-alive pings notice a dead peer
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  internal::v1::WatchRoutesRequest request;
  request.set_gateway_id(gateway_id_);
  const auto stub = internal::v1::RouteService::NewStub(scheduler_);
  const auto stream = stub->WatchRoutes(&context, request);
  bool came = false;
  internal::v1::RouteSnapshot snapshot, page;
  while (stream->Read(&page)) {
    snapshot.MergeFrom(page);  // lists are joined; the rest is the same in all pages
    if (page.more()) continue;
    snapshot.set_more(false);
    auto table = std::make_shared<const RouteTable>(std::move(snapshot));
    snapshot = {};
    std::map<Ticket, std::function<void()>> waiting;
    {
      const std::lock_guard lock(mutex_);
      table_ = table;
      waiting.swap(waiting_);
    }
    current_ = true;
    if (!came) spdlog::info("routes come from the scheduler, revision {}", table->revision());
    came = true;
    on_snapshot_(*table);
    for (const auto& [_, look] : waiting) look();
  }
  current_ = false;
  const grpc::Status status = stream->Finish();
  if (came && !stop.stop_requested()) {
    spdlog::warn("the scheduler's routes stopped coming ({}); the last ones stay in use",
                 status.error_message());
  }
  return came;
}

}  // namespace dex::gateway
