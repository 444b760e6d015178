#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "services/base/fd.h"
#include "services/base/status.h"

namespace dex::base {

// Messages over a stream socket between agent and trainer or engine: u32 little-endian length, then
// that many bytes. A length above max_bytes is refused before anything is allocated.
//
// One thread reads; any thread writes or offers. Failures: UNAVAILABLE CHANNEL_CLOSED (the other
// side is gone, between two frames), DATA_LOSS MALFORMED_FRAME (too long, or cut in the middle; the
// channel is useless after it), DEADLINE_EXCEEDED, CANCELLED (stop).
class FrameChannel {
 public:
  static constexpr uint32_t kMaxBytes = 4u << 20;

  // A connected pair: one channel for this process, one descriptor for a child
  // (Subprocess::inherit).
  static Result<std::pair<std::unique_ptr<FrameChannel>, Fd>> pair();
  explicit FrameChannel(Fd socket, uint32_t max_bytes = kMaxBytes);
  ~FrameChannel();
  FrameChannel(const FrameChannel&) = delete;
  FrameChannel& operator=(const FrameChannel&) = delete;

  // Waits for the next frame, at most timeout_ms (negative: without limit) and until stop. A frame
  // of which a part has arrived is kept for the next call.
  Result<std::string> read(int64_t timeout_ms, const std::stop_token& stop = {});

  // Sends the whole frame, after an offered one that still waits. A frame that could not be sent
  // whole within timeout_ms leaves the channel unusable for writing.
  Status write(std::string_view frame, int64_t timeout_ms);

  // Never blocks: sends the frame now or, if the socket is full, keeps it until a later offer or
  // write finds room; a newer offer replaces the waiting one. For progress, where only the newest
  // counts. A broken channel is reported by write and read.
  void offer(std::string frame);

  // Wakes a reader on either side with CHANNEL_CLOSED. Any thread.
  void shutdown();

 private:
  Status wait_readable(int64_t end_ms, const std::stop_token& stop);
  Status receive(char* data, size_t size, size_t& have, int64_t end_ms,
                 const std::stop_token& stop);
  Status send_some(int64_t end_ms);  // until outgoing_ is empty or end_ms; holds write_mutex_
  void stage(std::string_view frame);

  const Fd socket_;
  const Fd wake_;  // eventfd, written when a reader's stop token fires
  const uint32_t max_bytes_;

  // Reader's state: the frame that is arriving.
  uint8_t header_[4] = {};
  size_t header_have_ = 0;
  std::string body_;
  size_t body_have_ = 0;

  std::mutex write_mutex_;  // guards outgoing_, broken_ and the order of bytes on the socket
  std::string outgoing_;    // bytes of frames that are on their way
  size_t outgoing_sent_ = 0;
  Status broken_;
  std::mutex waiting_mutex_;
  std::optional<std::string> waiting_;  // the newest offer that did not fit
};

}  // namespace dex::base
