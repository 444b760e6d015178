#include "services/monitor/http_session.h"

#include <limits>
#include <utility>

namespace dex::monitor::detail {

namespace http = boost::beast::http;

namespace {

HttpRequest plain(const http::request<http::string_body>& message) {
  const std::string target(message.target());
  const auto question = target.find('?');
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.path = target.substr(0, question);
  if (question != std::string::npos) request.query = target.substr(question + 1);
  request.body = message.body();
  return request;
}

// Status and text for a request that can't be read; 0 when nobody is there to be told.
std::pair<int, std::string> complaint(boost::beast::error_code error) {
  if (error == http::error::header_limit) return {431, "the request's headers are too large"};
  if (error == http::error::body_limit) return {413, "the request's body is too large"};
  if (error == http::error::end_of_stream || error == http::error::partial_message) return {0, ""};
  if (error.category() == http::make_error_code(http::error::bad_method).category()) {
    return {400, "the request is not well-formed HTTP: " + error.message()};
  }
  return {0, ""};  // time-outs and broken connections
}

}  // namespace

HttpSession::HttpSession(boost::asio::ip::tcp::socket socket, std::shared_ptr<Shared> shared)
    // The buffer is what an endless header line may fill before the parser sees a whole line.
    : stream_(std::move(socket)),
      buffer_(shared->options.header_bytes + (64U << 10)),
      shared_(std::move(shared)) {
  ++shared_->open;
}

HttpSession::~HttpSession() {
  --shared_->open;
}

void HttpSession::read() {
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(shared_->options.header_bytes));
  parser_->body_limit(shared_->options.body_bytes);
  stream_.expires_after(shared_->options.read_timeout);
  http::async_read(stream_, buffer_, *parser_,
                   [self = shared_from_this()](boost::beast::error_code error, std::size_t) {
                     self->on_read(error);
                   });
}

void HttpSession::on_read(boost::beast::error_code error) {
  if (error) return refuse(error);
  const auto& request = parser_->get();
  const bool head = request.method() == http::verb::head;
  write(shared_->handler(plain(request)), request.version(), request.keep_alive(), head);
}

void HttpSession::refuse(boost::beast::error_code error) {
  const auto [status, message] = complaint(error);
  if (status == 0) return close();
  write({status, "text/plain", message + "\n", {}}, 11, /*keep_alive=*/false, /*head=*/false);
}

void HttpSession::write(HttpResponse response, unsigned version, bool keep_alive, bool head) {
  response_ = {};
  response_.version(version);
  response_.result(static_cast<unsigned>(response.status));
  response_.set(http::field::content_type, response.content_type);
  for (const auto& [name, value] : response.headers) response_.set(name, value);
  response_.keep_alive(keep_alive);
  const size_t length = response.body.size();
  if (!head) response_.body() = std::move(response.body);
  response_.content_length(length);
  stream_.expires_after(shared_->options.write_timeout);
  http::async_write(
      stream_, response_,
      [self = shared_from_this(), keep_alive](boost::beast::error_code error, std::size_t) {
        if (error || !keep_alive) return self->close();
        self->read();
      });
}

void HttpSession::close() {
  boost::beast::error_code ignored;
  stream_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_both, ignored);
  stream_.close();
}

}  // namespace dex::monitor::detail
