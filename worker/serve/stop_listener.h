#pragma once

#include <atomic>
#include <stop_token>
#include <thread>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/frame_channel.h"
#include "services/base/signals.h"

namespace dex::serve {

// Reads what the agent says while the main thread computes, in a thread of its own: from its
// beginning to its end it is the channel's only reader. A Stop frame, a signal and an agent that is
// gone all stop the token.
class StopListener {
 public:
  using Reason = internal::v1::TrainerCommand::Stop::Reason;

  StopListener(base::FrameChannel& channel, const base::StopSignals& signals)
      : on_signal_(signals.token(), OnSignal{this}),
        thread_([this, &channel](const std::stop_token& end) { listen(channel, end); }) {}

  [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }
  [[nodiscard]] Reason reason() const { return reason_; }

 private:
  using Stop = internal::v1::TrainerCommand::Stop;

  struct OnSignal {
    StopListener* self;
    void operator()() const { self->request(Stop::REASON_DRAIN); }
  };

  // The first reason counts: the agent says what it wants before it sends a signal.
  void request(Reason reason) {
    Reason none = Stop::REASON_UNSPECIFIED;
    reason_.compare_exchange_strong(none, reason);
    stop_.request_stop();
  }
  void listen(base::FrameChannel& channel, const std::stop_token& end) {
    while (!end.stop_requested()) {
      const auto frame = channel.read(-1, end);
      if (!frame.ok()) {  // the end of this object, or of the agent
        if (!end.stop_requested()) request(Stop::REASON_CANCEL);
        return;
      }
      internal::v1::TrainerCommand command;
      if (command.ParseFromString(*frame) && command.has_stop()) request(command.stop().reason());
    }
  }

  std::stop_source stop_;
  std::atomic<Reason> reason_ = Stop::REASON_UNSPECIFIED;
  std::stop_callback<OnSignal> on_signal_;
  std::jthread thread_;
};

}  // namespace dex::serve
