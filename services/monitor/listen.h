#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <string>

#include "services/base/status.h"

namespace dex::monitor {

// A listening socket at "host:port": an IP address or localhost, port 0 = any free one.
// INVALID_FIELD for an address of another form, UNAVAILABLE when it can't be bound.
base::Result<boost::asio::ip::tcp::acceptor> listen_at(boost::asio::io_context& io,
                                                       const std::string& address);

// "127.0.0.1:8080", with the real port.
std::string address_of(const boost::asio::ip::tcp::acceptor& acceptor);

}  // namespace dex::monitor
