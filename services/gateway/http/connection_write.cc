#include <array>
#include <boost/asio/buffer.hpp>

#include "services/gateway/http/connection.h"
#include "services/gateway/http/http_error.h"

namespace dex::gateway::http {

namespace {

constexpr size_t kMostBuffers = 16;  // in one call of the kernel

bool has_no_body(int status) {
  return status == 204 || status == 304 || status < 200;
}

}  // namespace

// Decides also whether the connection can go on: not after a body that was not read to its end.
void Connection::send_head(Head head) {
  turn_->keep = turn_->keep && turn_->body_done && !core_->draining && !saw_end_;
  turn_->status = head.status;
  head.http10 = turn_->intake.http10;
  head.keep_alive = turn_->keep;
  head.headers.insert(head.headers.end(), turn_->extra.begin(), turn_->extra.end());
  enqueue(to_text(head, std::chrono::system_clock::now()));
}

void Connection::reply(uint64_t turn, Reply reply) {
  if (!is_current(turn) || turn_->answer != AnswerState::kOpen) return;
  Head head;
  head.status = reply.status;
  head.content_type = std::move(reply.content_type);
  head.headers = std::move(reply.headers);
  const bool bodiless = has_no_body(reply.status);
  if (!bodiless) head.length = reply.body.size();
  send_head(std::move(head));
  if (!bodiless && !turn_->intake.head_only) enqueue(std::move(reply.body));
  turn_->answer = AnswerState::kComplete;
  turn_->reader = nullptr;
  flush();
}

void Connection::stream(uint64_t turn, Exchange::StreamStart start) {
  if (!is_current(turn) || turn_->answer != AnswerState::kOpen) return;
  Head head;
  head.status = start.status;
  head.content_type = std::move(start.content_type);
  head.headers = std::move(start.headers);
  head.length = start.length;
  turn_->left = start.length;
  turn_->chunked = head.chunked = !start.length && !turn_->intake.http10;
  // A 1.0 client knows the end by the connection's.
  if (!start.length && turn_->intake.http10) turn_->keep = false;
  send_head(std::move(head));
  turn_->answer = AnswerState::kStreaming;
  if (turn_->intake.head_only) {
    // The head was all that was asked for; whoever makes the body may stop.
    turn_->answer = AnswerState::kComplete;
    for (const auto& gone : std::exchange(turn_->gone, {})) gone();
    return flush();
  }
  turn_->pulse = std::move(start.keep_alive);
  turn_->pulse_every = start.keep_alive_every;
  last_write_ = Clock::now();
  if (!turn_->pulse.empty()) arm_pulse();
  flush();
}

void Connection::write(uint64_t turn, std::string chunk, Exchange::OnWritten on_written) {
  if (!is_current(turn) || turn_->answer != AnswerState::kStreaming) {
    if (on_written) on_written(false);
    return;
  }
  if (chunk.empty()) {
    if (on_written) on_written(true);
    return;
  }
  if (turn_->left && chunk.size() > *turn_->left) return cut(turn);
  if (turn_->left) *turn_->left -= chunk.size();
  if (turn_->chunked) {
    enqueue(chunk_head(chunk.size()));
    enqueue(std::move(chunk));
    enqueue("\r\n", std::move(on_written));
  } else {
    enqueue(std::move(chunk), std::move(on_written));
  }
  // The client doesn't take what its source doesn't wait for.
  if (out_bytes_ > core_->options.waiting_bytes) return fail();
  flush();
}

void Connection::end(uint64_t turn) {
  if (!is_current(turn) || turn_->answer != AnswerState::kStreaming) return;
  if (turn_->left.value_or(0) > 0) return cut(turn);
  if (turn_->chunked) enqueue("0\r\n\r\n");
  turn_->answer = AnswerState::kComplete;
  flush();
}

void Connection::cut(uint64_t turn) {
  if (!is_current(turn) || turn_->answer == AnswerState::kComplete) return;
  if (turn_->answer == AnswerState::kOpen) turn_->status = 499;
  turn_->answer = AnswerState::kComplete;
  turn_->keep = false;
  turn_->broken = true;
  flush();
}

void Connection::enqueue(std::string bytes, Exchange::OnWritten on_written) {
  if (bytes.empty() && !on_written) return;
  out_bytes_ += bytes.size();
  out_.push_back({std::move(bytes), std::move(on_written)});
}

void Connection::flush() {
  if (writing_ || closed_) return;
  if (out_.empty()) return finish_if_complete();
  std::vector<boost::asio::const_buffer> buffers;
  for (const Piece& piece : out_) {
    const size_t sent = buffers.empty() ? out_offset_ : 0;
    buffers.emplace_back(piece.bytes.data() + sent, piece.bytes.size() - sent);
    if (buffers.size() == kMostBuffers) break;
  }
  writing_ = true;
  // For each piece that the socket takes, so a slow reader has time, a silent one has not.
  stream_.expires_after(core_->options.write_timeout);
  stream_.async_write_some(
      buffers, [self = shared_from_this()](boost::beast::error_code error, size_t bytes) {
        self->on_written(error, bytes);
      });
}

void Connection::on_written(boost::beast::error_code error, size_t bytes) {
  writing_ = false;
  if (closed_) return;
  if (error) return fail();
  last_write_ = Clock::now();
  out_bytes_ -= bytes;
  bytes += out_offset_;
  std::vector<Exchange::OnWritten> told;
  while (!out_.empty() && bytes >= out_.front().bytes.size()) {
    bytes -= out_.front().bytes.size();
    if (out_.front().on_written) told.push_back(std::move(out_.front().on_written));
    out_.pop_front();
  }
  out_offset_ = bytes;
  flush();
  for (const auto& written : told) written(true);
}

void Connection::arm_pulse() {
  pulse_timer_.expires_at(last_write_ + turn_->pulse_every);
  pulse_timer_.async_wait(
      [self = shared_from_this(), turn = number_](boost::beast::error_code error) {
        if (!error && self->is_current(turn) && !self->closed_) self->send_pulse();
      });
}

void Connection::send_pulse() {
  if (turn_->answer != AnswerState::kStreaming) return;
  const auto now = Clock::now();
  if (!writing_ && now - last_write_ >= turn_->pulse_every) {
    last_write_ = now;
    write(number_, turn_->pulse, {});
    if (!turn_) return;
  } else if (writing_) {
    last_write_ = now;
  }
  arm_pulse();
}

}  // namespace dex::gateway::http
