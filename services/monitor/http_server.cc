#include "services/monitor/http_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <thread>

#include "services/monitor/http_session.h"
#include "services/monitor/listen.h"

namespace dex::monitor {

namespace {

using boost::asio::ip::tcp;

}  // namespace

// Owns the one thread. Everything but start and the destructor happens on it.
class HttpServer::Impl {
 public:
  Impl(Options options, Handler handler)
      : shared_(std::make_shared<detail::Shared>(
            detail::Shared{std::move(options), std::move(handler), 0})) {}

  ~Impl() {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  base::Status listen() {
    DEX_ASSIGN_OR_RETURN(acceptor_, listen_at(io_, shared_->options.address));
    port_ = acceptor_.local_endpoint().port();
    address_ = address_of(acceptor_);
    accept();
    thread_ = std::jthread([this] { io_.run(); });
    return {};
  }

  std::string address_;
  int port_ = 0;

 private:
  void accept() {
    acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
      if (error == boost::asio::error::operation_aborted) return;
      if (!error && shared_->open < shared_->options.connections) {
        std::make_shared<detail::HttpSession>(std::move(socket), shared_)->read();
      }
      // Out of descriptors: wait for some to come back instead of spinning on the same error.
      if (error) {
        pause_.expires_after(std::chrono::milliseconds(100));
        pause_.async_wait([this](boost::system::error_code stopped) {
          if (!stopped) accept();
        });
        return;
      }
      accept();
    });
  }

  std::shared_ptr<detail::Shared> shared_;  // before io_: sessions die with it and still count
  boost::asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  boost::asio::steady_timer pause_{io_};
  std::jthread thread_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

base::Result<std::unique_ptr<HttpServer>> HttpServer::start(Options options, Handler handler) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(handler));
  DEX_RETURN_IF_ERROR(impl->listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

const std::string& HttpServer::address() const {
  return impl_->address_;
}
int HttpServer::port() const {
  return impl_->port_;
}

}  // namespace dex::monitor
