#include "tests/e2e/watch/watch_crowd.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>

#include "services/base/signals.h"
#include "services/rpc/channel.h"
#include "services/rpc/status.h"
#include "tests/support/eventually.h"

namespace dex::support {

namespace {

constexpr size_t kFaultsKept = 10;
constexpr int64_t kLook_ms = 20;  // between two looks for watches that are to come back
constexpr int64_t kShortestDelay_ms = 200, kLongestDelay_ms = 2000;  // as in client/cpp/watch.cc

}  // namespace

// One watch. gRPC calls it from its own threads, one call at a time while the stream is open;
// between two streams it belongs to the returner.
class WatchCrowd::Watch final : public grpc::ClientReadReactor<v1::WatchFineTuningJobResponse> {
 public:
  Watch(WatchCrowd& crowd, v1::FineTuningService::Stub& stub, const std::string& job, int number)
      : crowd_(crowd), stub_(stub), number_(number) {
    request_.set_id(job);
  }

  void open() {
    context_ = std::make_unique<grpc::ClientContext>();
    request_.set_after_sequence(last_);
    state_ = State::kOpen;
    stub_.async()->WatchFineTuningJob(context_.get(), &request_, this);
    StartRead(&message_);
    StartCall();
  }
  void cancel() { context_->TryCancel(); }

  [[nodiscard]] int64_t last() const { return last_; }
  [[nodiscard]] bool is_open() const { return state_ == State::kOpen; }
  [[nodiscard]] bool has_ended() const { return state_ == State::kEnded; }
  [[nodiscard]] bool wants_back(int64_t now_ms) const {
    return state_ == State::kAway && due_ms_ <= now_ms;
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    delay_ms_ = kShortestDelay_ms;
    if (message_.has_event()) {
      const int64_t sequence = message_.event().sequence();
      if (sequence != last_ + 1) {
        crowd_.fault(name() + ": " + std::to_string(sequence) + " after " + std::to_string(last_));
      }
      last_ = sequence;
    }
    StartRead(&message_);
  }

  void OnDone(const grpc::Status& status) override {
    const base::Status end = rpc::from_grpc(status);
    State next = State::kEnded;
    if (!end.ok() && !crowd_.leaving_) {
      if (rpc::retryable(end)) {
        // Apart from each other: half of the delay to the whole.
        const int64_t half = delay_ms_ / 2;
        due_ms_ = crowd_.clock_.steady_ms() + half + number_ * 7919 % half;
        delay_ms_ = std::min(2 * delay_ms_, kLongestDelay_ms);
        next = State::kAway;
      } else {
        crowd_.fault(name() + " ended: " + end.to_string());
      }
    }
    state_ = next;  // last: from here on it is the returner's, or nobody's
  }

 private:
  enum class State { kOpen, kAway, kEnded };
  [[nodiscard]] std::string name() const { return "watch " + std::to_string(number_); }

  WatchCrowd& crowd_;
  v1::FineTuningService::Stub& stub_;
  const int64_t number_;
  std::unique_ptr<grpc::ClientContext> context_;
  v1::WatchFineTuningJobRequest request_;
  v1::WatchFineTuningJobResponse message_;
  std::atomic<int64_t> last_ = 0;
  int64_t delay_ms_ = kShortestDelay_ms;
  int64_t due_ms_ = 0;
  std::atomic<State> state_ = State::kAway;
};

WatchCrowd::WatchCrowd(const std::string& server, const std::string& job, int watchers,
                       int channels) {
  for (int i = 0; i < channels; ++i)
    stubs_.push_back(v1::FineTuningService::NewStub(rpc::channel(server)));
  for (int i = 0; i < watchers; ++i) {
    auto& stub = *stubs_[static_cast<size_t>(i % channels)];
    watches_.push_back(std::make_unique<Watch>(*this, stub, job, i));
    watches_.back()->open();
  }
  returner_ = std::jthread([this](const std::stop_token& stop) { bring_back(stop); });
}

WatchCrowd::~WatchCrowd() {
  returner_.request_stop();
  returner_.join();
  leaving_ = true;
  for (const auto& watch : watches_) watch->cancel();
  eventually([this] {
    return std::none_of(watches_.begin(), watches_.end(),
                        [](const auto& watch) { return watch->is_open(); });
  });
}

int WatchCrowd::behind(int64_t sequence) const {
  return static_cast<int>(
      std::count_if(watches_.begin(), watches_.end(),
                    [sequence](const auto& watch) { return watch->last() < sequence; }));
}

bool WatchCrowd::all_have(int64_t sequence, int64_t limit_ms) const {
  return eventually([&] { return behind(sequence) == 0; }, limit_ms);
}

bool WatchCrowd::all_ended(int64_t limit_ms) const {
  const auto ended = [this] {
    return std::all_of(watches_.begin(), watches_.end(),
                       [](const auto& watch) { return watch->has_ended(); });
  };
  return eventually(ended, limit_ms);
}

std::vector<std::string> WatchCrowd::wrong() const {
  const std::lock_guard lock(mutex_);
  return faults_;
}

void WatchCrowd::fault(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (faults_.size() < kFaultsKept) faults_.push_back(text);
}

void WatchCrowd::bring_back(const std::stop_token& stop) {
  while (!base::wait_for_stop(stop, kLook_ms)) {
    const int64_t now_ms = clock_.steady_ms();
    for (const auto& watch : watches_) {
      if (!watch->wants_back(now_ms)) continue;
      ++returns_;
      watch->open();
    }
  }
}

}  // namespace dex::support
