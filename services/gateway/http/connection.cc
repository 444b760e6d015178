#include "services/gateway/http/connection.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <limits>

#include "services/gateway/http/http_error.h"
#include "services/rpc/call_log.h"

namespace dex::gateway::http {

namespace {

// A refused request's body is read rather than the connection closed, up to this size.
constexpr uint64_t kSmallBody = 64 << 10;
constexpr std::chrono::seconds kLinger{2};

}  // namespace

Connection::Connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<Core> core)
    : core_(std::move(core)),
      stream_(std::move(socket)),
      buffer_(core_->options.header_bytes + (256U << 10)),
      incoming_(16 << 10),
      deadline_timer_(stream_.get_executor()),
      pulse_timer_(stream_.get_executor()) {
  boost::beast::error_code ignored;
  stream_.socket().set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  core_->metrics.connections(1);
}

Connection::~Connection() {
  core_->metrics.connections(-1);
  const std::lock_guard lock(core_->mutex);
  core_->connections.erase(this);
  core_->idle.notify_all();
}

void Connection::start() {
  post([](Connection& self) { self.begin(); });
}

void Connection::drain() {
  post([](Connection& self) {
    if (!self.turn_) {
      if (self.phase_ == Phase::kIdle) self.fail();
      return;
    }
    for (auto& drain : std::exchange(self.turn_->drain, {})) drain();
  });
}

void Connection::close() {
  boost::asio::post(stream_.get_executor(), [self = shared_from_this()] { self->fail(); });
}

void Connection::begin() {
  if (closed_) return;
  // A new connection may still ask for its one answer, such as /readyz.
  const bool drained = core_->draining && number_ > 0 && buffer_.size() == 0;
  if (saw_end_ || drained) return fail();
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(core_->options.header_bytes));
  // take_body() counts: the parser's own limit can't be set for each route.
  parser_->body_limit(std::numeric_limits<std::uint64_t>::max());
  phase_ = Phase::kIdle;
  parse_head();
}

void Connection::on_head() {
  turn_.emplace();
  ++number_;
  core_->count_answering(1);
  turn_->started = Clock::now();
  turn_->intake = take_in(*parser_, core_->router, core_->options.origins, core_->draining);
  const Intake& intake = turn_->intake;
  turn_->keep = intake.keep_alive;
  turn_->extra = cors_headers(core_->options.origins, intake.request);
  turn_->extra.emplace_back("x-request-id", intake.request.request_id);
  turn_->request_id = intake.request.request_id;
  turn_->traceparent =
      rpc::trace_parent_of(intake.request.header(rpc::kTraceParentHeader).value_or(""));
  turn_->body_done = parser_->is_done();
  phase_ = Phase::kAnswering;
  set_deadline(Clock::time_point::max());
  if (turn_->body_done) return body_is_there();
  if (!reading_) incoming_.resize(64 << 10);
  const bool small =
      !intake.expects_continue && intake.body_bytes.value_or(kSmallBody + 1) <= kSmallBody;
  if (intake.reply && !(small && turn_->keep)) return body_is_there();
  if (!intake.reply && intake.route->options.body == Body::kStream) {
    phase_ = Phase::kBody;
    return call_handler();
  }
  turn_->collecting = true;
  phase_ = Phase::kBody;
  phase_deadline_ = Clock::now() + core_->options.body_timeout;
  pump_body();
}

void Connection::body_is_there() {
  turn_->collecting = false;
  if (!turn_->intake.reply) return call_handler();
  reply(number_, std::move(*turn_->intake.reply));
}

void Connection::call_handler() {
  const Router::Route& route = *turn_->intake.route;
  const auto exchange = std::make_shared<LiveExchange>(shared_from_this(), core_, number_,
                                                       std::move(turn_->intake.request));
  try {
    route.handler(exchange);
  } catch (const std::exception& error) {  // a handler's fault; the client learns nothing of it
    spdlog::error("{} {} threw: {}", route.method, route.pattern, error.what());
    refuse(*exchange, base::internal("the server failed to answer this request"));
  }
  if (turn_->body_done) read_more();  // to notice a client that leaves
}

void Connection::note_end(const Turn& turn, int status) {
  const auto took = Clock::now() - turn.started;
  core_->metrics.request(turn.intake.label, status, took);
  rpc::log_traced_call("HTTP " + turn.intake.label, std::to_string(status), took, turn.request_id,
                       turn.traceparent);
}

void Connection::finish_if_complete() {
  if (!turn_ || turn_->answer != AnswerState::kComplete || writing_ || !out_.empty()) return;
  Turn turn = std::move(*turn_);
  turn_.reset();
  pulse_timer_.cancel();
  for (const auto& timer : turn.timers) timer->cancel();
  note_end(turn, turn.status);
  core_->count_answering(-1);
  if (turn.broken) return fail();
  if (!turn.keep) return linger();
  if (incoming_.size() > (16U << 10) && !reading_) std::vector<char>(16 << 10).swap(incoming_);
  begin();
}

// Closing at once would reset the connection while the client still sends, and the answer with it
// would be lost (RFC 9112 §9.6): so what comes is dropped for a while.
void Connection::linger() {
  boost::beast::error_code ignored;
  stream_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
  if (saw_end_) return fail();
  phase_ = Phase::kLingering;
  phase_deadline_ = Clock::now() + kLinger;
  buffer_.clear();
  read_more();
}

// The end of the connection, whoever wanted it: everybody who waits for something learns it.
void Connection::fail(bool timed_out) {
  if (closed_) return;
  closed_ = true;
  pulse_timer_.cancel();
  deadline_timer_.cancel();
  boost::beast::error_code ignored;
  stream_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_both, ignored);
  stream_.close();
  for (Piece& piece : std::exchange(out_, {})) {
    if (piece.on_written) piece.on_written(false);
  }
  out_bytes_ = 0;
  if (!turn_) return;
  Turn turn = std::move(*turn_);
  turn_.reset();
  failed_ = number_;
  for (const auto& timer : turn.timers) timer->cancel();
  note_end(turn, 499);
  if (turn.reader) {
    turn.reader(timed_out ? base::Status(base::Code::kDeadlineExceeded, "DEADLINE",
                                         "the client sent nothing for too long")
                          : base::Status(base::Code::kCancelled, "CLIENT_CANCELLED",
                                         "the client has gone"));
  }
  for (const auto& gone : turn.gone) gone();
  core_->count_answering(-1);
}

}  // namespace dex::gateway::http
