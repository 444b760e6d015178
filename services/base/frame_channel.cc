#include "services/base/frame_channel.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "services/base/clock.h"
#include "services/base/errno_status.h"

namespace dex::base {

namespace {

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

int64_t steady_ms() {
  return SystemClock().steady_ms();
}

int64_t end_of(int64_t timeout_ms) {
  return timeout_ms < 0 ? kForever : steady_ms() + timeout_ms;
}

// Milliseconds for poll: −1 without limit, 0 when the time is over.
int poll_ms(int64_t end_ms) {
  if (end_ms == kForever) return -1;
  return static_cast<int>(std::clamp<int64_t>(end_ms - steady_ms(), 0, 3'600'000));
}

Status closed() {
  return unavailable("CHANNEL_CLOSED", "the other side closed the channel");
}
Status malformed(std::string what) {
  return {Code::kDataLoss, "MALFORMED_FRAME", std::move(what)};
}
Status late() {
  return {Code::kDeadlineExceeded, "DEADLINE", "no whole frame in time"};
}

}  // namespace

Result<std::pair<std::unique_ptr<FrameChannel>, Fd>> FrameChannel::pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return errno_status(errno, "cannot make a socket pair");
  }
  return std::pair(std::make_unique<FrameChannel>(Fd(fds[0])), Fd(fds[1]));
}

FrameChannel::FrameChannel(Fd socket, uint32_t max_bytes)
    : socket_(std::move(socket)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      max_bytes_(max_bytes) {}

FrameChannel::~FrameChannel() = default;

Status FrameChannel::wait_readable(int64_t end_ms, const std::stop_token& stop) {
  pollfd entries[2] = {{socket_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  const int ready = poll(entries, 2, poll_ms(end_ms));
  if (ready < 0 && errno != EINTR) return errno_status(errno, "cannot wait for a frame");
  if (entries[1].revents != 0) {
    uint64_t ignored = 0;
    [[maybe_unused]] const auto got = ::read(wake_.get(), &ignored, sizeof ignored);
  }
  if (stop.stop_requested()) return {Code::kCancelled, "STOPPED", "stopped waiting for a frame"};
  if (ready == 0 && end_ms != kForever && steady_ms() >= end_ms) return late();
  return {};
}

Status FrameChannel::receive(char* data, size_t size, size_t& have, int64_t end_ms,
                             const std::stop_token& stop) {
  while (have < size) {
    const ssize_t got = recv(socket_.get(), data + have, size - have, MSG_DONTWAIT);
    if (got > 0) {
      have += static_cast<size_t>(got);
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      DEX_RETURN_IF_ERROR(wait_readable(end_ms, stop));
      continue;
    }
    // A reset is how a killed peer with unread bytes looks: gone, like an orderly end.
    if (got < 0 && errno != ECONNRESET) return errno_status(errno, "cannot read a frame");
    const bool inside = header_have_ > 0;
    return inside ? malformed("the channel ended in the middle of a frame") : closed();
  }
  return {};
}

Result<std::string> FrameChannel::read(int64_t timeout_ms, const std::stop_token& stop) {
  const int64_t end = end_of(timeout_ms);
  const std::stop_callback waker(stop, [this] {
    const uint64_t one = 1;
    [[maybe_unused]] const auto put = ::write(wake_.get(), &one, sizeof one);
  });
  if (header_have_ < sizeof header_) {
    DEX_RETURN_IF_ERROR(
        receive(reinterpret_cast<char*>(header_), sizeof header_, header_have_, end, stop));
    const uint32_t length =
        header_[0] | header_[1] << 8 | header_[2] << 16 | static_cast<uint32_t>(header_[3]) << 24;
    if (length > max_bytes_) {
      header_have_ = 0;
      shutdown();
      return malformed("frame of " + std::to_string(length) + " bytes, at most " +
                       std::to_string(max_bytes_) + " are allowed");
    }
    body_.assign(length, '\0');
    body_have_ = 0;
  }
  DEX_RETURN_IF_ERROR(receive(body_.data(), body_.size(), body_have_, end, stop));
  header_have_ = 0;
  return std::exchange(body_, {});
}

void FrameChannel::stage(std::string_view frame) {
  const auto length = static_cast<uint32_t>(frame.size());
  for (int shift = 0; shift < 32; shift += 8) {
    outgoing_ += static_cast<char>(length >> shift & 0xff);
  }
  outgoing_ += frame;
}

Status FrameChannel::send_some(int64_t end_ms) {
  while (outgoing_sent_ < outgoing_.size()) {
    const ssize_t put = send(socket_.get(), outgoing_.data() + outgoing_sent_,
                             outgoing_.size() - outgoing_sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put >= 0) {
      outgoing_sent_ += static_cast<size_t>(put);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) return broken_ = closed();
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      return broken_ = errno_status(errno, "cannot write a frame");
    }
    const int wait_ms = poll_ms(end_ms);
    if (wait_ms == 0) return late();
    pollfd entry{socket_.get(), POLLOUT, 0};
    poll(&entry, 1, wait_ms);
  }
  outgoing_.clear();
  outgoing_sent_ = 0;
  return {};
}

Status FrameChannel::write(std::string_view frame, int64_t timeout_ms) {
  if (frame.size() > max_bytes_) {
    return invalid_argument("TOO_LARGE", "frame of " + std::to_string(frame.size()) +
                                             " bytes, at most " + std::to_string(max_bytes_) +
                                             " are allowed");
  }
  const std::lock_guard lock(write_mutex_);
  if (!broken_.ok()) return broken_;
  {
    const std::lock_guard waiting_lock(waiting_mutex_);
    if (waiting_) stage(*waiting_);
    waiting_.reset();
  }
  stage(frame);
  auto sent = send_some(end_of(timeout_ms));
  if (!sent.ok()) broken_ = sent;
  return sent;
}

void FrameChannel::offer(std::string frame) {
  if (frame.size() > max_bytes_) return;
  {
    const std::lock_guard waiting_lock(waiting_mutex_);
    waiting_ = std::move(frame);
  }
  // A busy writer takes the waiting frame along, or the next offer does.
  const std::unique_lock lock(write_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !broken_.ok()) return;
  if (!send_some(0).ok()) return;  // an earlier frame is still on its way
  {
    const std::lock_guard waiting_lock(waiting_mutex_);
    if (!waiting_) return;
    stage(*waiting_);
    waiting_.reset();
  }
  (void)send_some(0).ok();
}

void FrameChannel::shutdown() {
  ::shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace dex::base
