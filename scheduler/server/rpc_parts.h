#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "scheduler/server/job_id.h"
#include "scheduler/server/job_view.h"
#include "scheduler/server/job_watches.h"
#include "scheduler/server/request_key.h"
#include "scheduler/server/times.h"
#include "scheduler/server/waiters.h"
#include "services/auth/principal.h"
#include "services/rpc/stream.h"
#include "services/rpc/unary.h"

// What several of the gRPC services of this room share.
namespace dex::server {

// The reply of a mutating call; a repeat is marked (api.md §1, idempotency).
template <typename Reply>
base::Result<Reply> marked(rpc::Call& call, base::Result<Answer<Reply>> answer) {
  DEX_RETURN_IF_ERROR(answer.status());
  if (answer->replayed) call.add_trailer("dex-replayed", "true");
  return std::move(answer->reply);
}

// Answers `pending` once `look` has an end to tell: a reply or a failure. A store that is away is
// none. `gone` is called once the client is, and again until it answers true.
template <typename Pending, typename Look, typename Gone>
void answer_when_ended(Waiters& waiters, std::shared_ptr<Pending> pending, Look look, Gone gone) {
  waiters.add([pending = std::move(pending), look = std::move(look), gone = std::move(gone)] {
    if (!pending->alive()) return gone();
    auto found = look();
    if (found.ok() && !found->has_value()) return false;
    if (found.status().code() == base::Code::kUnavailable) return false;
    if (found.ok()) {
      pending->answer(std::move(**found));
    } else {
      pending->answer(found.status());
    }
    return true;
  });
}

// The same for what goes on without its client.
template <typename Pending, typename Look>
void answer_when_ended(Waiters& waiters, std::shared_ptr<Pending> pending, Look look) {
  answer_when_ended(waiters, std::move(pending), std::move(look), [] { return true; });
}

// A watch's client behind a stream of `Message`, which is {event | snapshot | heartbeat}. `View`
// makes the snapshot from a record.
template <typename Message, typename View>
class WatchClient final : public JobWatches::Client {
 public:
  using Stream = rpc::ServerStream<Message>;
  WatchClient(std::shared_ptr<Stream> stream, View view)
      : stream_(std::move(stream)), view_(std::move(view)) {}
  bool push(JobNews& news) override { return stream_->push(shown(news)); }
  [[nodiscard]] size_t room() override { return stream_->room(); }
  void when_room(std::function<void()> then) override { stream_->when_room(std::move(then)); }
  void finish(const base::Status& status) override { stream_->finish(status); }
  [[nodiscard]] bool gone() const override { return stream_->call().stop().stop_requested(); }

 private:
  // Made for the first client of the job. Were another kind of message kept, this one makes its
  // own.
  std::shared_ptr<const Message> shown(JobNews& news) const {
    auto same = std::dynamic_pointer_cast<const Message>(news.shown);
    if (same != nullptr) return same;
    auto out = std::make_shared<Message>();
    if (const auto* entry = std::get_if<store::LogEntry>(&news.news)) {
      *out->mutable_event() = event_view(news.job, *entry);
    } else if (const auto* event = std::get_if<v1::FineTuningEvent>(&news.news)) {
      *out->mutable_event() = *event;
    } else {
      *out->mutable_snapshot() = view_(std::get<store::JobRecord>(news.news));
    }
    news.shown = out;
    return out;
  }

  std::shared_ptr<Stream> stream_;
  View view_;
};

// What a watch is of: the prefix of its ids, what an error calls it, and who may see it.
struct Watched {
  std::string prefix, type;
  auth::Scope scope;
};

// A watch of one job, from `after_sequence` on.
template <typename Message, typename Request, typename View>
grpc::ServerWriteReactor<Message>* watch_job(rpc::Room& room, JobWatches& watches,
                                             grpc::CallbackServerContext* ctx, const Request* in,
                                             const Watched& watched, View view) {
  auto last = std::make_shared<std::atomic<int64_t>>(in->after_sequence());
  rpc::StreamOptions<Message> options;
  options.heartbeat = [last] {
    Message message;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    *message.mutable_heartbeat()->mutable_server_time() =
        timestamp(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
    message.mutable_heartbeat()->set_last_sequence(*last);
    return message;
  };
  return rpc::stream<Message>(
      room, ctx, in,
      [&watches, last, watched, view](std::shared_ptr<rpc::ServerStream<Message>> stream,
                                      const Request& request) {
        const auto who = stream->call().principal();
        if (auto allowed = auth::require(who, watched.scope); !allowed.ok())
          return stream->finish(allowed);
        if (request.after_sequence() < 0)
          return stream->finish(base::invalid_field("after_sequence", "must be ≥ 0"));
        if (auto known = check_job_id(request.id(), watched.prefix, watched.type); !known.ok())
          return stream->finish(known);
        watches.watch(who.tenant(), request.id(), request.after_sequence(),
                      std::make_shared<WatchClient<Message, View>>(std::move(stream), view), last);
      },
      std::move(options));
}

// The bytes of an upload's next message, behind its header; nothing at its end. `reader` has
// next(): rpc::Upload, rpc::PendingUpload.
template <typename Reader>
base::Result<std::optional<std::string>> next_chunk(Reader& reader) {
  DEX_ASSIGN_OR_RETURN(auto message, reader.next());
  if (!message) return std::optional<std::string>();
  if (!message->has_chunk())
    return base::invalid_field("chunk", "must follow the header, and nothing else");
  if (message->chunk().size() > (1 << 20)) {
    return base::Status(base::Code::kInvalidArgument, "TOO_LARGE", "a chunk may have 1 MiB at most")
        .with_violation("chunk", "may have 1 MiB at most");
  }
  return std::optional<std::string>(std::move(*message->mutable_chunk()));
}

// A download writes everything itself, on a thread that may wait for its client.
template <typename Message>
std::function<bool(std::string)> chunk_sink(rpc::ServerStream<Message>& stream) {
  return [&stream](std::string piece) {
    Message message;
    message.set_chunk(std::move(piece));
    return stream.write(std::move(message));
  };
}

template <typename Message>
rpc::StreamOptions<Message> download_options() {
  rpc::StreamOptions<Message> options;
  options.queue = 8;  // 2 MiB a client
  options.waits_for_client = true;
  return options;
}

}  // namespace dex::server
