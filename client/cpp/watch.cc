#include <algorithm>

#include "client/cpp/call_context.h"
#include "client/cpp/client.h"
#include "services/base/random.h"
#include "services/rpc/status.h"

namespace dex::client {

namespace {

using std::chrono::milliseconds;

// A server that ended the stream early (restart, drain, a reader too slow, too many who came back
// at once) is asked again; so is one that is away. Anything else, like NOT_FOUND, is final.
bool worth_asking_again(const grpc::Status& status) {
  if (status.ok() || status.error_code() == grpc::StatusCode::UNAVAILABLE ||
      status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
    return true;
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
         rpc::from_grpc(status).reason() == "RATE_LIMITED";
}

// Half of the delay to the whole: those who lost their server together come back apart.
milliseconds with_jitter(milliseconds delay) {
  static base::SystemRandom random;
  return milliseconds(
      static_cast<int64_t>(static_cast<double>(delay.count()) * (1.0 - base::uniform(random) / 2)));
}

// What one connection of a watch came to.
struct Round {
  grpc::Status status;
  bool wanted = true;     // the callback's last word
  bool finished = false;  // a terminal snapshot was delivered
  bool delivered = false;
};

// Follows a job over as many connections as it takes. `open` starts a stream of `Message` behind a
// sequence number.
template <typename Message, typename Open>
Status follow(const std::stop_token& stop, const std::string& api_key, int64_t after_sequence,
              const std::function<bool(const Message&)>& callback, const Open& open) {
  milliseconds delay{200};
  while (true) {
    CallContext context(stop, std::nullopt, api_key);  // a watch has no end of its own
    const auto reader = open(context.get(), after_sequence);
    Round round;
    Message message;
    while (round.wanted && reader->Read(&message)) {
      round.delivered = true;
      if (message.has_event()) {
        after_sequence = std::max(after_sequence, message.event().sequence());
      }
      if (message.has_snapshot()) round.finished = has_ended(message.snapshot().state());
      round.wanted = callback(message);
    }
    if (!round.wanted) context.get().TryCancel();
    round.status = reader->Finish();

    if (!round.wanted) return {};
    if (stop.stop_requested()) {
      return {base::Code::kCancelled, "CLIENT_CANCELLED", "stopped on request"};
    }
    if (round.status.ok() && round.finished) return {};
    if (!worth_asking_again(round.status)) return rpc::from_grpc(round.status);
    if (round.delivered) delay = milliseconds(200);
    if (!wait_unless_stopped(stop, with_jitter(delay))) {
      return {base::Code::kCancelled, "CLIENT_CANCELLED", "stopped on request"};
    }
    delay = std::min(delay * 2, milliseconds(2000));
  }
}

}  // namespace

bool has_ended(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED || state == v1::JOB_STATE_EXPIRED;
}

Status Client::watch_job(const std::string& id, int64_t after_sequence,
                         const WatchCallback& callback) {
  return follow<v1::WatchFineTuningJobResponse>(
      options_.stop, options_.api_key, after_sequence, callback,
      [&](grpc::ClientContext& context, int64_t after) {
        v1::WatchFineTuningJobRequest request;
        request.set_id(id);
        request.set_after_sequence(after);
        return jobs_->WatchFineTuningJob(&context, request);
      });
}

Status Client::watch_evaluation(const std::string& id, int64_t after_sequence,
                                const EvaluationCallback& callback) {
  return follow<v1::WatchEvaluationResponse>(
      options_.stop, options_.api_key, after_sequence, callback,
      [&](grpc::ClientContext& context, int64_t after) {
        v1::WatchEvaluationRequest request;
        request.set_id(id);
        request.set_after_sequence(after);
        return evaluations_->WatchEvaluation(&context, request);
      });
}

}  // namespace dex::client
