#include <utility>

#include "services/gateway/http/connection.h"
#include "services/gateway/http/http_error.h"

namespace dex::gateway::http {

LiveExchange::LiveExchange(std::shared_ptr<Connection> connection, std::shared_ptr<Core> core,
                           uint64_t turn, Request request)
    : core_(std::move(core)),
      connection_(std::move(connection)),
      turn_(turn),
      request_(std::move(request)) {
  core_->count_exchange(1);
}

LiveExchange::~LiveExchange() {
  connection_->post([turn = turn_](Connection& connection) { connection.dropped(turn); });
  core_->count_exchange(-1);
}

void LiveExchange::read(OnChunk on_chunk) {
  connection_->post([turn = turn_, on_chunk = std::move(on_chunk)](Connection& connection) mutable {
    connection.read(turn, std::move(on_chunk));
  });
}

void LiveExchange::reply(Reply reply) {
  connection_->post([turn = turn_, reply = std::move(reply)](Connection& connection) mutable {
    connection.reply(turn, std::move(reply));
  });
}

void LiveExchange::stream(StreamStart start) {
  connection_->post([turn = turn_, start = std::move(start)](Connection& connection) mutable {
    connection.stream(turn, std::move(start));
  });
}

void LiveExchange::write(std::string chunk, OnWritten on_written) {
  connection_->post([turn = turn_, chunk = std::move(chunk),
                     on_written = std::move(on_written)](Connection& connection) mutable {
    connection.write(turn, std::move(chunk), std::move(on_written));
  });
}

void LiveExchange::end() {
  connection_->post([turn = turn_](Connection& connection) { connection.end(turn); });
}

void LiveExchange::cut() {
  connection_->post([turn = turn_](Connection& connection) { connection.cut(turn); });
}

void LiveExchange::on_gone(std::function<void()> gone) {
  connection_->post([turn = turn_, gone = std::move(gone)](Connection& connection) mutable {
    connection.on_gone(turn, std::move(gone));
  });
}

void LiveExchange::on_drain(std::function<void()> drain) {
  connection_->post([turn = turn_, drain = std::move(drain)](Connection& connection) mutable {
    connection.on_drain(turn, std::move(drain));
  });
}

void LiveExchange::after(std::chrono::milliseconds time, std::function<void()> then) {
  connection_->post([turn = turn_, time, then = std::move(then)](Connection& connection) mutable {
    connection.after(turn, time, std::move(then));
  });
}

void Connection::on_gone(uint64_t turn, std::function<void()> gone) {
  if (was_cut(turn)) return gone();
  if (!is_current(turn) || turn_->answer == AnswerState::kComplete) return;
  turn_->gone.push_back(std::move(gone));
}

void Connection::on_drain(uint64_t turn, std::function<void()> drain) {
  if (!is_current(turn) || turn_->answer == AnswerState::kComplete) return;
  if (core_->draining) return drain();
  turn_->drain.push_back(std::move(drain));
}

void Connection::after(uint64_t turn, std::chrono::milliseconds time, std::function<void()> then) {
  if (!is_current(turn) || turn_->answer == AnswerState::kComplete) return;
  const auto timer = std::make_shared<boost::asio::steady_timer>(stream_.get_executor(), time);
  turn_->timers.push_back(timer);
  timer->async_wait([self = shared_from_this(), turn, timer,
                     then = std::move(then)](boost::beast::error_code error) {
    if (error || !self->is_current(turn)) return;
    if (self->turn_->answer != AnswerState::kComplete) then();
  });
}

void Connection::dropped(uint64_t turn) {
  if (!is_current(turn) || turn_->answer == AnswerState::kComplete) return;
  if (turn_->answer == AnswerState::kStreaming) return cut(turn);
  std::string request_id;
  for (const auto& [name, value] : turn_->extra) {
    if (name == "x-request-id") request_id = value;
  }
  reply(turn, error_reply(base::internal("the server gave this request up without an answer"),
                          request_id));
}

}  // namespace dex::gateway::http
