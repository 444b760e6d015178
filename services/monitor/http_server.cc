#include "services/monitor/http_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <charconv>
#include <thread>

#include "services/monitor/http_session.h"

namespace dex::monitor {

namespace {

using boost::asio::ip::tcp;

base::Result<tcp::endpoint> parse(const std::string& address) {
  const auto bad = [&] {
    return base::invalid_field("address", "'" + address +
                                              "' is not host:port with an IP address or localhost, "
                                              "such as 127.0.0.1:8080 or [::1]:0");
  };
  const auto colon = address.rfind(':');
  if (colon == std::string::npos) return bad();
  std::string host = address.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  boost::system::error_code error;
  const auto ip = boost::asio::ip::make_address(host, error);
  uint16_t port = 0;
  const char* end = address.data() + address.size();
  const auto read = std::from_chars(address.data() + colon + 1, end, port);
  if (error || read.ec != std::errc() || read.ptr != end) return bad();
  return tcp::endpoint(ip, port);
}

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

  base::Status listen(const tcp::endpoint& endpoint) {
    boost::system::error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    if (error) {
      return base::unavailable(
          "INTERNAL", "cannot listen on '" + shared_->options.address + "': " + error.message());
    }
    const auto real = acceptor_.local_endpoint();
    port_ = real.port();
    const std::string host = real.address().to_string();
    address_ = (real.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(port_);
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
  DEX_ASSIGN_OR_RETURN(const auto endpoint, parse(options.address));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(handler));
  DEX_RETURN_IF_ERROR(impl->listen(endpoint));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

const std::string& HttpServer::address() const {
  return impl_->address_;
}
int HttpServer::port() const {
  return impl_->port_;
}

}  // namespace dex::monitor
