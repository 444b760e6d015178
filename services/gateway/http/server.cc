#include "services/gateway/http/server.h"

#include <spdlog/spdlog.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <exception>
#include <thread>
#include <vector>

#include "services/gateway/http/connection.h"
#include "services/gateway/http/core.h"
#include "services/monitor/listen.h"

namespace dex::gateway::http {

using boost::asio::ip::tcp;

class Server::Impl {
 public:
  Impl(Options options, Router router, monitor::Registry& metrics)
      : core_(std::make_shared<Core>(std::move(options), std::move(router), metrics)),
        acceptor_(core_->io),
        pause_(core_->io),
        strand_(boost::asio::make_strand(core_->io)),
        work_(boost::asio::make_work_guard(core_->io)) {}

  ~Impl() {
    close();
    {
      // Calls behind are cancelled by their connections' ends; what holds their exchanges goes
      // soon.
      std::unique_lock lock(core_->mutex);
      const bool gone = core_->idle.wait_for(lock, std::chrono::seconds(10), [this] {
        return !listening_ && core_->exchanges == 0 && core_->connections.empty();
      });
      if (!gone && core_->exchanges > 0) {
        spdlog::error("HTTP door: {} requests are still held 10 s after its end", core_->exchanges);
      }
    }
    core_->closed = true;
    core_->io.stop();
    threads_.clear();  // joins
  }

  base::Status listen() {
    DEX_ASSIGN_OR_RETURN(acceptor_, monitor::listen_at(core_->io, core_->options.address));
    address_ = monitor::address_of(acceptor_);
    port_ = acceptor_.local_endpoint().port();
    listening_ = true;
    accept();
    for (int i = 0; i < core_->options.threads; ++i) threads_.emplace_back([this] { work(); });
    return {};
  }

  void drain() {
    core_->draining = true;
    for (const auto& connection : connections()) connection->drain();
  }

  bool wait_until_idle(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(core_->mutex);
    return core_->idle.wait_until(lock, deadline, [this] { return core_->answering == 0; });
  }

  void close() {
    boost::asio::post(strand_, [this] {
      boost::system::error_code ignored;
      acceptor_.close(ignored);
      pause_.cancel();
      // Those that were accepted before this are known by now.
      for (const auto& connection : connections()) connection->close();
      const std::lock_guard lock(core_->mutex);
      listening_ = false;
      core_->idle.notify_all();
    });
  }

  std::string address_;
  int port_ = 0;

 private:
  // A callback of a handler that throws ends its request, not the server.
  void work() {
    while (true) {
      try {
        core_->io.run();
        return;
      } catch (const std::exception& error) {
        spdlog::error("HTTP door: a callback threw: {}", error.what());
      }
    }
  }

  std::vector<std::shared_ptr<Connection>> connections() {
    std::vector<std::shared_ptr<Connection>> alive;
    const std::lock_guard lock(core_->mutex);
    for (const auto& [_, known] : core_->connections) {
      if (auto connection = known.lock()) alive.push_back(std::move(connection));
    }
    return alive;
  }

  void accept() {
    // Each connection's socket lives on a strand of its own; this handler on the acceptor's.
    acceptor_.async_accept(
        boost::asio::make_strand(core_->io),
        boost::asio::bind_executor(strand_,
                                   [this](boost::system::error_code error, tcp::socket socket) {
                                     on_accept(error, std::move(socket));
                                   }));
  }

  void on_accept(boost::system::error_code error, tcp::socket socket) {
    if (error == boost::asio::error::operation_aborted || !acceptor_.is_open()) return;
    if (error) {
      // Out of descriptors: wait for some to come back instead of spinning on the same error.
      pause_.expires_after(std::chrono::milliseconds(100));
      pause_.async_wait(
          boost::asio::bind_executor(strand_, [this](boost::system::error_code stopped) {
            if (!stopped && acceptor_.is_open()) accept();
          }));
      return;
    }
    if (known() < core_->options.connections) {
      const auto connection = std::make_shared<Connection>(std::move(socket), core_);
      {
        const std::lock_guard lock(core_->mutex);
        core_->connections.emplace(connection.get(), connection);
      }
      connection->start();
    } else {
      core_->metrics.refused_connection();
    }
    accept();
  }

  size_t known() {
    const std::lock_guard lock(core_->mutex);
    return core_->connections.size();
  }

  const std::shared_ptr<Core> core_;
  tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  boost::asio::strand<boost::asio::io_context::executor_type> strand_;
  bool listening_ = false;  // guarded by core_->mutex once the threads run
  // Exchanges speak, and connections go, after the last socket has closed: until ~Impl it runs on.
  const boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::vector<std::jthread> threads_;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

base::Result<std::unique_ptr<Server>> Server::start(Options options, Router router,
                                                    monitor::Registry& metrics) {
  DEX_RETURN_IF_ERROR(check_cors_origins(options.origins.cors_origins));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(router), metrics);
  DEX_RETURN_IF_ERROR(impl->listen());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

const std::string& Server::address() const {
  return impl_->address_;
}
int Server::port() const {
  return impl_->port_;
}
void Server::drain() {
  impl_->drain();
}
bool Server::wait_until_idle(std::chrono::steady_clock::time_point deadline) {
  return impl_->wait_until_idle(deadline);
}
void Server::close() {
  impl_->close();
}

}  // namespace dex::gateway::http
