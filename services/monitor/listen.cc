#include "services/monitor/listen.h"

#include <charconv>
#include <cstdint>
#include <utility>

namespace dex::monitor {

namespace {

using boost::asio::ip::tcp;

base::Result<tcp::endpoint> parse_endpoint(const std::string& address) {
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

base::Result<tcp::acceptor> listen_at(boost::asio::io_context& io, const std::string& address) {
  DEX_ASSIGN_OR_RETURN(const auto endpoint, parse_endpoint(address));
  tcp::acceptor acceptor(io);
  boost::system::error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (error) {
    return base::unavailable("INTERNAL", "cannot listen on '" + address + "': " + error.message());
  }
  return acceptor;
}

std::string address_of(const tcp::acceptor& acceptor) {
  const auto real = acceptor.local_endpoint();
  const std::string host = real.address().to_string();
  return (real.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(real.port());
}

}  // namespace dex::monitor
