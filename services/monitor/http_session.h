#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <memory>
#include <optional>

#include "services/monitor/http_server.h"

namespace dex::monitor::detail {

// What all sessions of a server share; used by its one thread only.
struct Shared {
  HttpServer::Options options;
  HttpServer::Handler handler;
  size_t open = 0;
};

// One connection: reads a request, answers it, reads the next. Keeps itself alive by its pending
// operation and ends when that fails or times out.
class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(boost::asio::ip::tcp::socket socket, std::shared_ptr<Shared> shared);
  ~HttpSession();

  void read();

 private:
  void on_read(boost::beast::error_code error);
  void refuse(boost::beast::error_code error);
  void write(HttpResponse response, unsigned version, bool keep_alive, bool head);
  void close();

  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  std::shared_ptr<Shared> shared_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  boost::beast::http::response<boost::beast::http::string_body> response_;
};

}  // namespace dex::monitor::detail
