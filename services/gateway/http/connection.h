#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/gateway/http/core.h"
#include "services/gateway/http/exchange.h"
#include "services/gateway/http/head.h"
#include "services/gateway/http/intake.h"

namespace dex::gateway::http {

// One connection: reads a request, has it answered, reads the next. Everything happens on its
// strand but for post() and the three functions above it. One read is on the way while a head or
// body is wanted, and while an answer is worked out (so that a client that leaves is noticed); one
// write while anything waits. It lives as long as an operation is on the way or an exchange holds
// it.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<Core> core);
  ~Connection();

  void start();
  void drain();
  void close();
  // Runs `work(*this)` on the strand, later; nothing once the server is closed.
  template <typename Work>
  void post(Work work) {
    if (core_->closed) return;
    boost::asio::post(stream_.get_executor(), [self = shared_from_this(),
                                               work = std::move(work)]() mutable { work(*self); });
  }

  // What an exchange asks for (exchange.h), on the strand. `turn` is the number of its request: an
  // exchange whose answer is complete is not the current one any more.
  void read(uint64_t turn, Exchange::OnChunk on_chunk);
  void reply(uint64_t turn, Reply reply);
  void stream(uint64_t turn, Exchange::StreamStart start);
  void write(uint64_t turn, std::string chunk, Exchange::OnWritten on_written);
  void end(uint64_t turn);
  void cut(uint64_t turn);
  void on_gone(uint64_t turn, std::function<void()> gone);
  void on_drain(uint64_t turn, std::function<void()> drain);
  void after(uint64_t turn, std::chrono::milliseconds time, std::function<void()> then);
  void dropped(uint64_t turn);  // nobody holds the exchange any more

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase : std::uint8_t { kIdle, kHead, kBody, kAnswering, kLingering };
  enum class AnswerState : std::uint8_t { kOpen, kStreaming, kComplete };

  // The request that is being answered.
  struct Turn {
    Intake intake;
    Headers extra;  // on any answer: x-request-id, CORS
    Clock::time_point started;
    std::string request_id, traceparent;  // the request itself is the handler's
    AnswerState answer = AnswerState::kOpen;
    int status = 0;
    bool keep = false;    // the connection goes on after the answer
    bool broken = false;  // the answer was cut: no lingering
    bool chunked = false;
    std::optional<uint64_t> left;  // of a declared length
    std::string pulse;             // StreamStart::keep_alive
    std::chrono::milliseconds pulse_every{0};
    std::vector<std::function<void()>> gone, drain;
    std::vector<std::shared_ptr<boost::asio::steady_timer>> timers;
    bool body_done = false;
    bool collecting = false;  // the body is read here, before the handler or the refusal
    uint64_t body_seen = 0;
    Exchange::OnChunk reader;
  };
  struct Piece {
    std::string bytes;
    Exchange::OnWritten on_written;
  };

  // connection.cc: from request to request
  void begin();
  void on_head();
  void body_is_there();
  void call_handler();
  void finish_if_complete();
  void note_end(const Turn& turn, int status);  // for metrics and log
  void linger();
  void fail(bool timed_out = false);
  [[nodiscard]] bool is_current(uint64_t turn) const { return turn_ && turn == number_; }
  [[nodiscard]] bool was_cut(uint64_t turn) const { return turn == failed_; }

  // connection_read.cc
  void read_more();
  void set_deadline(Clock::time_point deadline);
  void on_read(boost::beast::error_code error, size_t bytes);
  void parse_head();
  void pump_body();
  base::Result<std::string> take_body();
  void give(base::Result<std::string> chunk);

  // connection_write.cc
  void send_head(Head head);
  void enqueue(std::string bytes, Exchange::OnWritten on_written = {});
  void flush();
  void on_written(boost::beast::error_code error, size_t bytes);
  void send_pulse();
  void arm_pulse();

  const std::shared_ptr<Core> core_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;  // read, not yet parsed
  std::vector<char> incoming_;        // where the socket reads to
  bool reading_ = false;
  bool closed_ = false;
  bool saw_end_ = false;  // the client sends nothing more
  Phase phase_ = Phase::kIdle;
  Clock::time_point phase_deadline_;  // kHead, kLingering, and kBody while collecting
  // When the client has to have sent something; of its own, as a read that watches for the client's
  // leaving goes over into one for the next head.
  boost::asio::steady_timer deadline_timer_;
  size_t lingered_ = 0;
  std::optional<RequestParser> parser_;

  std::optional<Turn> turn_;
  uint64_t number_ = 0;  // of the current or last turn
  uint64_t failed_ = 0;  // the turn whose client had gone; 0: none

  std::deque<Piece> out_;
  size_t out_bytes_ = 0;   // of all pieces, less what of the first is sent
  size_t out_offset_ = 0;  // sent of the first
  bool writing_ = false;
  Clock::time_point last_write_;
  boost::asio::steady_timer pulse_timer_;
};

// The Exchange of one turn.
class LiveExchange final : public Exchange {
 public:
  LiveExchange(std::shared_ptr<Connection> connection, std::shared_ptr<Core> core, uint64_t turn,
               Request request);
  ~LiveExchange() override;

  [[nodiscard]] const Request& request() const override { return request_; }
  void read(OnChunk on_chunk) override;
  void reply(Reply reply) override;
  void stream(StreamStart start) override;
  void write(std::string chunk, OnWritten on_written) override;
  void end() override;
  void cut() override;
  void on_gone(std::function<void()> gone) override;
  void on_drain(std::function<void()> drain) override;
  void after(std::chrono::milliseconds time, std::function<void()> then) override;

 private:
  const std::shared_ptr<Core> core_;
  const std::shared_ptr<Connection> connection_;
  const uint64_t turn_;
  const Request request_;
};

}  // namespace dex::gateway::http
