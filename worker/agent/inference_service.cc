#include "worker/agent/inference_service.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>

#include "services/rpc/headers.h"
#include "services/rpc/stream.h"
#include "services/rpc/unary.h"

namespace dex::agent {

namespace {

using dex::v1::GenerateRequest;
using dex::v1::GenerateResponse;
using dex::v1::GenerateStreamResponse;

constexpr double kLongest_seconds = 600;  // api.md §1, deadlines
constexpr size_t kStreamQueue = 4096;     // a whole long answer for a client that reads slowly

std::chrono::milliseconds cap(const GenerateRequest& request) {
  const double wanted =
      request.has_timeout_seconds() ? request.timeout_seconds() : kLongest_seconds;
  const double seconds = wanted > 0 ? std::min(wanted, kLongest_seconds) : kLongest_seconds;
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// A sink that tells the engine when the caller is gone; armed once the request has its number. It
// may end inside the very call that its own callback makes: the callback touches nothing of it
// after.
class CallSink : public ReplySink {
 public:
  explicit CallSink(std::string alias) : alias_(std::move(alias)) {}
  void arm(Engine& engine, uint64_t request, const std::stop_token& stop) {
    gone_.emplace(stop, Cancel{&engine, request});
  }

 protected:
  // The engine knows the adapter alone; the start also says by which alias it was asked for.
  void name_alias(GenerateStreamResponse& event) const {
    if (alias_.empty() || !event.has_start() || !event.start().has_adapter()) return;
    event.mutable_start()->mutable_adapter()->set_alias_used(alias_);
  }

 private:
  const std::string alias_;
  struct Cancel {
    Engine* engine;
    uint64_t request;
    void operator()() const { engine->cancel(request); }
  };
  std::optional<std::stop_callback<Cancel>> gone_;
};

// Deadline, drain or a client that went away: the engine's answer to the cancellation that followed
// must not win over the reason of it.
std::optional<base::Status> over(const rpc::Call& call) {
  if (!call.stop().stop_requested()) return std::nullopt;
  return call.time_left().count() == 0 ? rpc::deadline_passed() : rpc::client_cancelled();
}

class UnarySink final : public CallSink {
 public:
  UnarySink(std::shared_ptr<rpc::Pending<GenerateResponse>> pending, std::string alias)
      : CallSink(std::move(alias)), pending_(std::move(pending)) {}
  bool event(GenerateStreamResponse event) override {
    name_alias(event);
    builder_.add(event);
    return pending_->alive();
  }
  void finish(const GenerateStreamResponse::Finish& finish) override {
    if (const auto why = over(pending_->call())) return pending_->answer(*why);
    pending_->answer(builder_.take(finish));
  }
  void fail(const base::Status& status) override { pending_->answer(status); }

 private:
  std::shared_ptr<rpc::Pending<GenerateResponse>> pending_;
  ReplyBuilder builder_;
};

class StreamSink final : public CallSink {
 public:
  StreamSink(std::shared_ptr<rpc::ServerStream<GenerateStreamResponse>> stream, std::string alias)
      : CallSink(std::move(alias)), stream_(std::move(stream)) {}
  bool event(GenerateStreamResponse event) override {
    name_alias(event);
    return stream_->push(std::move(event));
  }
  void finish(const GenerateStreamResponse::Finish& finish) override {
    if (const auto why = over(stream_->call())) return stream_->finish(*why);
    GenerateStreamResponse last;
    *last.mutable_finish() = finish;
    stream_->push(std::move(last));
    stream_->finish({});
  }
  void fail(const base::Status& status) override { stream_->finish(status); }

 private:
  std::shared_ptr<rpc::ServerStream<GenerateStreamResponse>> stream_;
};

// "ft:<base>:<tenant>:<suffix>:<ulid>" → base
std::string base_of_adapter(const std::string& id) {
  if (!id.starts_with("ft:")) return {};
  return id.substr(3, id.find(':', 3) - 3);
}

void hand_over(Engine& engine, const GenerateRequest& request, const std::string& reply_id,
               const iv1::DesiredAdapter& adapter, const std::shared_ptr<CallSink>& sink,
               const std::stop_token& stop) {
  const auto number = engine.generate(request, reply_id, adapter, sink);
  if (number) sink->arm(engine, *number, stop);
}

}  // namespace

InferenceService::InferenceService(rpc::Room& room, EngineSet& engines, const DataPaths& paths,
                                   base::UlidGenerator& ids)
    : room_(room), engines_(engines), paths_(paths), ids_(ids) {}

template <typename Request>
base::Result<InferenceService::Target> InferenceService::target(const Request& request,
                                                                const rpc::Call& call) const {
  Target target;
  std::string base = call.header(rpc::kRoutedBaseHeader).value_or("");
  if (!base.empty()) {
    target.adapter.set_id(call.header(rpc::kRoutedAdapterHeader).value_or(""));
  } else {
    // Called without a gateway: the request speaks for itself.
    const bool model_is_base = engines_.find(request.model()) != nullptr;
    if (request.has_adapter()) {
      if (request.adapter() != "none") target.adapter.set_id(request.adapter());
    } else if (!model_is_base) {
      target.adapter.set_id(request.model());
    }
    base = model_is_base ? request.model() : base_of_adapter(target.adapter.id());
  }
  target.engine = engines_.find(base);
  if (target.engine == nullptr) {
    return base::unavailable("NO_WORKER", "this worker does not serve '" +
                                              (base.empty() ? request.model() : base) + "'");
  }
  if (target.adapter.id().empty()) return target;
  target.alias = call.header(rpc::kRoutedAliasHeader).value_or("");
  target.adapter.set_base(base);
  target.adapter.set_content_sha256(call.header(rpc::kRoutedAdapterHashHeader).value_or(""));
  const auto path = call.header(rpc::kRoutedAdapterPathHeader).value_or("");
  if (!path.empty()) {
    DEX_ASSIGN_OR_RETURN(const auto absolute, paths_.absolute(path));
    target.adapter.set_path(absolute.string());
  }
  return target;
}

grpc::ServerUnaryReactor* InferenceService::Generate(grpc::CallbackServerContext* context,
                                                     const GenerateRequest* in,
                                                     GenerateResponse* out) {
  return rpc::run_async(
      room_, context, in, out,
      [this](std::shared_ptr<rpc::Pending<GenerateResponse>> pending,
             const GenerateRequest& request) {
        const auto target = this->target(request, pending->call());
        if (!target.ok()) return pending->answer(target.status());
        const auto stop = pending->call().stop();
        hand_over(*target->engine, request, ids_.make("gen-"), target->adapter,
                  std::make_shared<UnarySink>(std::move(pending), target->alias), stop);
      },
      cap(*in));
}

grpc::ServerWriteReactor<GenerateStreamResponse>* InferenceService::GenerateStream(
    grpc::CallbackServerContext* context, const GenerateRequest* in) {
  rpc::StreamOptions<GenerateStreamResponse> options;
  options.queue = kStreamQueue;
  options.cap = cap(*in);
  return rpc::stream<GenerateStreamResponse>(
      room_, context, in,
      [this](std::shared_ptr<rpc::ServerStream<GenerateStreamResponse>> stream,
             const GenerateRequest& request) {
        const auto target = this->target(request, stream->call());
        if (!target.ok()) return stream->finish(target.status());
        const auto stop = stream->call().stop();
        hand_over(*target->engine, request, ids_.make("gen-"), target->adapter,
                  std::make_shared<StreamSink>(std::move(stream), target->alias), stop);
      },
      std::move(options));
}

template <typename Request, typename Reply, typename Ask, typename Take>
grpc::ServerUnaryReactor* InferenceService::ask_text(grpc::CallbackServerContext* context,
                                                     const Request* in, Reply* out, Ask ask,
                                                     Take take) {
  using Pending = rpc::Pending<Reply>;
  return rpc::run_async(
      room_, context, in, out,
      [this, ask, take](std::shared_ptr<Pending> pending, const Request& request) {
        const auto target = this->target(request, pending->call());
        if (!target.ok()) return pending->answer(target.status());
        iv1::EngineCommand::Text command;
        ask(request, command);
        target->engine->ask_text(std::move(command),
                                 [pending, take](base::Result<TextTable::Report> report) {
                                   if (!report.ok()) return pending->answer(report.status());
                                   pending->answer(take(*report));
                                 });
      });
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const dex::v1::TokenizeRequest* in,
                                                     dex::v1::TokenizeResponse* out) {
  return ask_text(
      context, in, out,
      [](const auto& request, auto& command) { *command.mutable_tokenize() = request; },
      [](const TextTable::Report& report) { return report.tokenize(); });
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const dex::v1::DetokenizeRequest* in,
                                                       dex::v1::DetokenizeResponse* out) {
  return ask_text(
      context, in, out,
      [](const auto& request, auto& command) { *command.mutable_detokenize() = request; },
      [](const TextTable::Report& report) { return report.detokenize(); });
}

grpc::ServerUnaryReactor* InferenceService::GetTokenizerInfo(
    grpc::CallbackServerContext* context, const dex::v1::GetTokenizerInfoRequest* in,
    dex::v1::TokenizerInfo* out) {
  return ask_text(
      context, in, out,
      [](const auto& request, auto& command) { *command.mutable_info() = request; },
      [](const TextTable::Report& report) { return report.info(); });
}

}  // namespace dex::agent
