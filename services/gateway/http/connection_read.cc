#include <boost/asio/buffer.hpp>
#include <limits>

#include "services/gateway/http/connection.h"
#include "services/gateway/http/http_error.h"

namespace dex::gateway::http {

namespace {

namespace beast_http = boost::beast::http;

constexpr size_t kMostAhead = 64 << 10;    // pipelined requests, read while one is answered
constexpr size_t kMostLingered = 4 << 20;  // of a body that nobody wants

}  // namespace

void Connection::read_more() {
  if (closed_) return;
  const auto now = Clock::now();
  switch (phase_) {
    case Phase::kIdle:
      set_deadline(now + core_->options.idle_timeout);
      break;
    case Phase::kBody:
      set_deadline(turn_->collecting ? phase_deadline_ : now + core_->options.upload_idle);
      break;
    case Phase::kHead:
    case Phase::kLingering:
      set_deadline(phase_deadline_);
      break;
    case Phase::kAnswering:
      set_deadline(Clock::time_point::max());
      if (buffer_.size() >= kMostAhead) return;
      break;
  }
  if (reading_ || saw_end_) return;
  reading_ = true;
  stream_.expires_never();
  stream_.async_read_some(
      boost::asio::buffer(incoming_),
      [self = shared_from_this()](boost::beast::error_code error, size_t bytes) {
        self->on_read(error, bytes);
      });
}

void Connection::set_deadline(Clock::time_point deadline) {
  deadline_timer_.expires_at(deadline);  // a wait that is just ending finds it moved
  if (deadline == Clock::time_point::max()) return;
  deadline_timer_.async_wait([self = shared_from_this()](boost::beast::error_code error) {
    if (error || self->closed_ || self->deadline_timer_.expiry() > Clock::now()) return;
    self->fail(/*timed_out=*/true);
  });
}

void Connection::on_read(boost::beast::error_code error, size_t bytes) {
  reading_ = false;
  if (closed_) return;
  if (error) {
    saw_end_ = true;
    // An answer that is complete still goes out to a client that has sent its last.
    const bool only_end = error == boost::asio::error::eof;
    const bool complete = turn_ && turn_->answer == AnswerState::kComplete;
    if (complete && only_end) return;
    return fail();
  }
  if (phase_ == Phase::kLingering) {
    lingered_ += bytes;
    return lingered_ > kMostLingered ? fail() : read_more();
  }
  boost::asio::buffer_copy(buffer_.prepare(bytes), boost::asio::buffer(incoming_.data(), bytes));
  buffer_.commit(bytes);
  switch (phase_) {
    case Phase::kIdle:
    case Phase::kHead:
      return parse_head();
    case Phase::kBody:
      return pump_body();
    default:
      return read_more();
  }
}

void Connection::parse_head() {
  const auto front = [&](size_t i) { return static_cast<const char*>(buffer_.data().data())[i]; };
  // An empty line before a request is forgiven (RFC 9112 §2.2).
  while (phase_ == Phase::kIdle && buffer_.size() >= 2 && front(0) == '\r' && front(1) == '\n') {
    buffer_.consume(2);
  }
  if (buffer_.size() == 0) return read_more();
  if (phase_ == Phase::kIdle) {
    phase_ = Phase::kHead;
    phase_deadline_ = Clock::now() + core_->options.header_timeout;
  }
  boost::beast::error_code error;
  do {
    buffer_.consume(parser_->put(buffer_.data(), error));
  } while (!error && !parser_->is_header_done());
  if (parser_->is_header_done() && !error) return on_head();
  if (error == beast_http::error::need_more && buffer_.size() <= core_->options.header_bytes) {
    return read_more();
  }
  if (error == beast_http::error::need_more) error = beast_http::error::header_limit;
  turn_.emplace();
  ++number_;
  core_->count_answering(1);
  turn_->started = Clock::now();
  turn_->intake.label = "invalid";
  phase_ = Phase::kAnswering;
  reply(number_, refuse_bytes(error));
}

void Connection::read(uint64_t turn, Exchange::OnChunk on_chunk) {
  if (!is_current(turn) || turn_->answer == AnswerState::kComplete) {
    return on_chunk(
        base::Status(base::Code::kCancelled, "CLIENT_CANCELLED", "the exchange is over"));
  }
  turn_->reader = std::move(on_chunk);
  pump_body();
}

// Takes from the buffer, and reads more, until whoever wants the body has something.
void Connection::pump_body() {
  while (turn_ && (turn_->reader || turn_->collecting)) {
    if (turn_->body_done) {
      if (turn_->collecting) return body_is_there();
      return give(std::string());
    }
    auto chunk = take_body();
    if (chunk.ok() && chunk->empty() && !turn_->body_done) {
      if (std::exchange(turn_->intake.expects_continue, false)) {
        enqueue("HTTP/1.1 100 Continue\r\n\r\n");
        flush();
      }
      return read_more();
    }
    if (turn_->body_done) {
      phase_ = Phase::kAnswering;
      read_more();
    }
    if (turn_->collecting && chunk.ok()) {
      turn_->intake.request.body += *chunk;
    } else if (turn_->collecting) {
      turn_->collecting = false;
      phase_ = Phase::kAnswering;
      return reply(number_, error_reply(chunk.status(), turn_->intake.request.request_id));
    } else if (!chunk.ok() || !chunk->empty()) {
      return give(std::move(chunk));
    }
  }
}

// What of the body lies in the buffer, decoded; empty: nothing does. Sets body_done.
base::Result<std::string> Connection::take_body() {
  std::string chunk;
  boost::beast::error_code error;
  while (buffer_.size() > 0 && chunk.empty() && !parser_->is_done()) {
    chunk.resize(buffer_.size());
    auto& body = parser_->get().body();
    body.data = chunk.data();
    body.size = chunk.size();
    parser_->eager(true);
    buffer_.consume(parser_->put(buffer_.data(), error));
    chunk.resize(chunk.size() - body.size);
    if (error == beast_http::error::need_buffer) error = {};
    if (error == beast_http::error::need_more) {
      error = {};
      if (buffer_.size() <= core_->options.header_bytes) break;
      error = beast_http::error::header_limit;  // an endless line between chunks
    }
    if (error) break;
  }
  if (error) {
    turn_->keep = false;
    return base::invalid_field("body", "the request's body is not well-formed: " + error.message());
  }
  turn_->body_done = parser_->is_done();
  turn_->body_seen += chunk.size();
  const uint64_t most = turn_->intake.route != nullptr ? turn_->intake.route->options.body_bytes
                                                       : std::numeric_limits<uint64_t>::max();
  if (turn_->body_seen > most) {
    turn_->keep = false;
    return body_too_large(most);
  }
  return chunk;
}

void Connection::give(base::Result<std::string> chunk) {
  set_deadline(Clock::time_point::max());  // until more is asked for, nothing is due
  std::exchange(turn_->reader, nullptr)(std::move(chunk));
}

}  // namespace dex::gateway::http
