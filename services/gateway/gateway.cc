#include "services/gateway/gateway.h"

#include <grpcpp/channel.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "services/auth/authenticator.h"
#include "services/auth/key_ring.h"
#include "services/auth/listen_address.h"
#include "services/auth/rate_limiter.h"
#include "services/base/clock.h"
#include "services/gateway/http/routes.h"
#include "services/gateway/http/server.h"
#include "services/gateway/metrics.h"
#include "services/gateway/proxy/admission.h"
#include "services/gateway/proxy/front.h"
#include "services/gateway/routing/balancer.h"
#include "services/gateway/routing/route_watcher.h"
#include "services/gateway/routing/use_report.h"
#include "services/monitor/monitor_server.h"
#include "services/monitor/registry.h"
#include "services/rpc/channel.h"
#include "services/rpc/server.h"

namespace dex::gateway {

namespace {

// Handlers of the gateway are reactors: nothing here waits on a thread, but for GetHealth.
rpc::Room::Options small_room(std::shared_ptr<const auth::Authenticator> callers) {
  rpc::Room::Options options;
  options.callers = std::move(callers);
  options.unary.threads = 1;
  options.streams.threads = 1;
  options.transfers.threads = 1;
  return options;
}

}  // namespace

// Members in the order in which they may be used; destroyed the other way round.
class Gateway::Impl {
 public:
  Impl(const Options& options, std::unique_ptr<AuditLog> audit)
      : registry_("gateway", options.version, options.commit),
        metrics_(registry_),
        authenticates_(options.authenticate),
        room_(small_room(options.authenticate
                             ? std::make_shared<const auth::Authenticator>(keys_, clock_)
                             : std::make_shared<const auth::Authenticator>())),
        scheduler_(rpc::channel(options.scheduler)),
        limiter_(options.requests_per_minute, clock_),
        uses_(scheduler_, clock_, options.use_period),
        admission_({room_, limiter_, uses_}),
        audit_(std::move(audit)),
        routes_(scheduler_, rpc::new_request_id(),
                [this](const RouteTable& table) {
                  metrics_.snapshot_now();
                  keys_.replace(table.keys());
                  balancer_.keep_only(table);
                }),
        front_({room_,
                scheduler_,
                admission_,
                {routes_, balancer_, metrics_, uses_, options.route_patience},
                metrics_,
                audit_.get(),
                options.version,
                options.commit}) {}
  ~Impl() {
    // Clients of the HTTP door first, so that their calls end; then the front that answers those;
    // then what waited for them.
    if (http_) http_->close();
    server_.reset();
    http_.reset();
    upstream_.reset();
    room_.close();  // a handler uses front_
  }

  base::Status listen(const Options& options) {
    // Routes come when they change, which may be days: it is the watch that says whether they hold.
    registry_.before_scrape([this] {
      if (routes_.current()) metrics_.snapshot_now();
    });
    if (!options.authenticate) {
      DEX_RETURN_IF_ERROR(auth::check_listen_address("--listen", options.listen));
      DEX_RETURN_IF_ERROR(auth::check_listen_address("--http-listen", options.http_listen));
    }
    warn_of_open_air(options);
    DEX_RETURN_IF_ERROR(auth::check_listen_address("--metrics-listen", options.metrics_listen));
    rpc::Server::Options server;
    server.address = options.listen;
    server.services = front_.services();
    server.generic = &front_;
    server.is_public = true;
    DEX_ASSIGN_OR_RETURN(server_, rpc::Server::start(server, room_, registry_));

    // Over loopback: gRPC's in-process transport cuts every call as soon as the server drains.
    upstream_ = std::make_unique<http::Upstream>(rpc::channel(server_->address()));
    DEX_RETURN_IF_ERROR(listen_http(options));
    DEX_ASSIGN_OR_RETURN(
        monitor_, monitor::start_monitor_server(options.metrics_listen, registry_, readiness()));
    return {};
  }

  void stop(std::chrono::milliseconds grace) {
    const auto deadline = std::chrono::steady_clock::now() + grace;
    if (http_) http_->drain();
    if (server_) server_->stop(grace);
    // Every call has ended by now; what their clients have not taken yet has the rest of the time.
    constexpr std::chrono::milliseconds kLastWords{500};
    const auto last = std::max(deadline, std::chrono::steady_clock::now() + kLastWords);
    if (http_ && !http_->wait_until_idle(last)) {
      spdlog::warn("HTTP: some answers were cut at the end of the grace");
    }
  }

  [[nodiscard]] const std::string& grpc_address() const { return server_->address(); }
  [[nodiscard]] const std::string& http_address() const { return http_->address(); }
  [[nodiscard]] const std::string& metrics_address() const { return monitor_->address(); }

 private:
  // This server speaks no TLS.
  static void warn_of_open_air(const Options& options) {
    for (const std::string& address : {options.listen, options.http_listen}) {
      if (auth::is_loopback(address)) continue;
      spdlog::warn(
          "{} can be reached from other machines without encryption, and API keys can be read on "
          "the way: put a proxy that ends TLS in front of it, or keep to a private network",
          address);
    }
  }

  base::Status listen_http(const Options& options) {
    http::RouteParts parts{*upstream_, room_, registry_, readiness(), nullptr};
    if (!options.web_root.empty()) {
      DEX_ASSIGN_OR_RETURN(parts.pages, http::StaticFiles::load(options.web_root));
    }
    http::Router router;
    http::add_routes(router, parts);
    http::Server::Options server;
    server.address = options.http_listen;
    server.threads = options.http_threads;
    server.origins.cors_origins = options.cors_origins;
    server.origins.authenticated = options.authenticate;
    if (options.authenticate) {
      server.origins.admit = [this](const http::Request& request) {
        return room_.authenticate(request.header("authorization")).status();
      };
    }
    DEX_ASSIGN_OR_RETURN(http_,
                         http::Server::start(std::move(server), std::move(router), registry_));
    return {};
  }

  // Ready once it has had a snapshot, and from then on: the scheduler may go away (jobs.md §15).
  monitor::Readiness readiness() {
    return [this]() -> base::Status {
      if (room_.draining()) return rpc::server_draining();
      if (authenticates_) DEX_RETURN_IF_ERROR(keys_.find("").status());
      if (routes_.table()) return {};
      return base::unavailable("STORE_UNAVAILABLE", "no routes have come from the scheduler yet");
    };
  }

  monitor::Registry registry_;
  Metrics metrics_;
  base::SystemClock clock_;
  auth::KeyRing keys_;
  const bool authenticates_;
  rpc::Room room_;
  std::shared_ptr<grpc::Channel> scheduler_;
  auth::RateLimiter limiter_;
  UseReport uses_;
  Admission admission_;
  const std::unique_ptr<AuditLog> audit_;  // null: none is kept
  Balancer balancer_;
  RouteWatcher routes_;
  Front front_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<http::Upstream> upstream_;
  std::unique_ptr<http::Server> http_;
  std::unique_ptr<monitor::HttpServer> monitor_;
};

Gateway::Gateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gateway::~Gateway() = default;

base::Result<std::unique_ptr<Gateway>> Gateway::start(const Options& options) {
  if (options.scheduler.empty()) {
    return base::invalid_field("--scheduler", "give the scheduler's address, e.g. 127.0.0.1:50052");
  }
  std::unique_ptr<AuditLog> audit;
  if (!options.audit_log.empty()) {
    DEX_ASSIGN_OR_RETURN(audit, AuditLog::open(options.audit_log));
  }
  auto impl = std::make_unique<Impl>(options, std::move(audit));
  DEX_RETURN_IF_ERROR(impl->listen(options));
  return std::unique_ptr<Gateway>(new Gateway(std::move(impl)));
}

const std::string& Gateway::grpc_address() const {
  return impl_->grpc_address();
}
const std::string& Gateway::http_address() const {
  return impl_->http_address();
}
const std::string& Gateway::metrics_address() const {
  return impl_->metrics_address();
}
void Gateway::stop(std::chrono::milliseconds grace) {
  impl_->stop(grace);
}

}  // namespace dex::gateway
