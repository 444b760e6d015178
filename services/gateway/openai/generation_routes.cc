#include <memory>
#include <mutex>
#include <optional>

#include "services/gateway/http/sse.h"
#include "services/gateway/openai/door.h"
#include "services/gateway/openai/generation_objects.h"
#include "services/gateway/openai/generation_request.h"

namespace dex::gateway::openai {

namespace {

using http::ExchangePtr;

constexpr const char* kGenerate = "/dex.v1.InferenceService/Generate";
constexpr const char* kStream = "/dex.v1.InferenceService/GenerateStream";
// Above the longest generation (api.md §1), which the worker ends in its own words.
constexpr std::chrono::seconds kLongest{630};

http::CallOptions call_options() {
  http::CallOptions options;
  options.timeout = kLongest;
  return options;
}

// Every choice at once; answers when all are there, or with the first failure.
class WholeAnswer : public std::enable_shared_from_this<WholeAnswer> {
 public:
  WholeAnswer(ExchangePtr exchange, GenerationPlan plan)
      : exchange_(std::move(exchange)),
        plan_(std::move(plan)),
        replies_(plan_.requests.size()),
        missing_(plan_.requests.size()) {}

  void begin(Door& door) {
    for (size_t i = 0; i < plan_.requests.size(); ++i) {
      auto call = door.upstream.call<v1::GenerateResponse>(
          exchange_, kGenerate, plan_.requests[i],
          [self = shared_from_this(), i](http::Answer<v1::GenerateResponse> answer) {
            self->take(i, std::move(answer));
          },
          call_options());
      const std::lock_guard lock(mutex_);
      if (refused_) return call->cancel();
      calls_.push_back(std::move(call));
    }
  }

 private:
  void take(size_t choice, http::Answer<v1::GenerateResponse> answer) {
    std::vector<std::shared_ptr<http::ClientStream>> others;
    {
      const std::lock_guard lock(mutex_);
      if (missing_ == 0) return;  // refused already
      missing_ = answer.status.ok() ? missing_ - 1 : 0;
      if (!answer.status.ok()) refused_ = true, others.swap(calls_);
      replies_[choice] = std::move(answer.message);
      if (answer.status.ok() && missing_ > 0) return;
    }
    for (const auto& call : others) call->cancel();  // nobody reads their answers
    if (!answer.status.ok()) return http::refuse(*exchange_, answer.status);
    http::Reply reply = http::json_reply(generation_object(plan_, replies_));
    reply.headers = adapter_headers(replies_.front().has_adapter(), replies_.front().adapter());
    exchange_->reply(std::move(reply));
  }

  const ExchangePtr exchange_;
  const GenerationPlan plan_;
  std::mutex mutex_;
  std::vector<v1::GenerateResponse> replies_;               // guarded by mutex_ until all are there
  size_t missing_;                                          // guarded by mutex_; 0: answered
  std::vector<std::shared_ptr<http::ClientStream>> calls_;  // guarded by mutex_
  bool refused_ = false;                                    // guarded by mutex_
};

// Every choice at once, as chunks. A choice's next message is asked for when its last chunk has
// been written, so a slow reader slows the engine and nothing piles up here.
class StreamedAnswer : public std::enable_shared_from_this<StreamedAnswer> {
 public:
  StreamedAnswer(ExchangePtr exchange, GenerationPlan plan)
      : exchange_(std::move(exchange)), plan_(std::move(plan)), chunks_(plan_) {}

  void begin(Door& door) {
    for (size_t i = 0; i < plan_.requests.size(); ++i) {
      door.upstream.watch<v1::GenerateStreamResponse>(
          exchange_, kStream, plan_.requests[i],
          [self = shared_from_this(), i](const Call& call,
                                         const v1::GenerateStreamResponse& message) {
            self->take(call, i, message);
          },
          [self = shared_from_this()](const grpc::Status& status, const http::Headers& /*more*/) {
            self->ended(status);
          },
          call_options());
    }
  }

 private:
  using Call = http::Upstream::StreamPtr;

  void take(const Call& call, size_t choice, const v1::GenerateStreamResponse& message) {
    const std::lock_guard lock(mutex_);
    if (over_) return;  // lets go of the call, which ends it
    if (message.has_start()) {
      const auto& start = message.start();
      // Only now is it sure that an answer comes, and from which adapter.
      if (!stream_)
        stream_.emplace(exchange_, adapter_headers(start.has_adapter(), start.adapter()));
      return send(call, chunks_.start(choice, start));
    }
    if (message.has_delta()) return send(call, chunks_.delta(choice, message.delta()));
    if (message.has_finish()) return send(call, chunks_.finish(choice, message.finish()));
    call->next();
  }

  // With mutex_ held.
  void send(const Call& call, const std::optional<json>& chunk) {
    if (!chunk || !stream_) return call->next();
    stream_->send({.data = http::dump(*chunk)}, [self = shared_from_this(), call](bool ok) {
      ok && !self->over() ? call->next() : call->cancel();
    });
  }

  void ended(const grpc::Status& status) {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    ++ended_;
    if (status.ok() && ended_ < plan_.requests.size()) return;
    over_ = true;
    // One choice's failure ends the answer: a client could not tell which part of it is whole.
    if (!status.ok()) return stream_ ? stream_->fail(status) : http::refuse(*exchange_, status);
    if (!stream_) stream_.emplace(exchange_);
    if (plan_.include_usage) stream_->send({.data = http::dump(chunks_.usage())});
    stream_->send({.data = "[DONE]"});
    stream_->end();
  }

  bool over() {
    const std::lock_guard lock(mutex_);
    return over_;
  }

  const ExchangePtr exchange_;
  const GenerationPlan plan_;
  std::mutex mutex_;  // guards all below
  ChunkMaker chunks_;
  std::optional<http::SseStream> stream_;
  size_t ended_ = 0;
  bool over_ = false;
};

http::Handler generate(const DoorPtr& door, base::Result<GenerationPlan> (*read)(const json&)) {
  return [door, read](const ExchangePtr& exchange) {
    with_object(exchange, [&](const json& body) {
      auto plan = read(body);
      if (!plan.ok()) return http::refuse(*exchange, plan.status());
      if (plan.value().stream)
        return std::make_shared<StreamedAnswer>(exchange, std::move(plan).value())->begin(*door);
      std::make_shared<WholeAnswer>(exchange, std::move(plan).value())->begin(*door);
    });
  };
}

}  // namespace

void add_generation_routes(http::Router& router, const DoorPtr& door) {
  http::RouteOptions options;
  options.changes_state = true;  // costs a machine's time: not for pages of strangers
  router.add("POST", "/v1/chat/completions", generate(door, read_chat), options);
  router.add("POST", "/v1/completions", generate(door, read_completion), options);
}

}  // namespace dex::gateway::openai
