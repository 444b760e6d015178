#include "services/gateway/proxy/inference_call.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include "dex/v1/inference.pb.h"
#include "services/gateway/proxy/message_text.h"
#include "services/gateway/proxy/public_services.h"
#include "services/rpc/headers.h"
#include "services/rpc/room.h"
#include "services/rpc/status.h"

namespace dex::gateway {

namespace {

constexpr std::chrono::minutes kLongestGeneration{10};  // api.md §1, deadlines
constexpr std::string_view kAdapterPrefix = "ft:";
constexpr std::string_view kGenerate = "/dex.v1.InferenceService/Generate";
constexpr std::string_view kGenerateStream = "/dex.v1.InferenceService/GenerateStream";
constexpr size_t kOutbox = 2;  // replies that wait for the client; more stay in gRPC's windows

// The worker, or the engine behind it, is gone: another one can answer.
bool lost(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return false;
  if (!rpc::has_error_info(status)) return true;  // no connection, or it broke
  const std::string reason = rpc::from_grpc(status).reason();
  return reason == "ENGINE_LOST" || reason == "SERVER_DRAINING" || reason == "NO_WORKER";
}

base::Status no_routes_yet() {
  return base::unavailable("STORE_UNAVAILABLE",
                           "the scheduler has not answered since this gateway started, so no "
                           "worker is known yet");
}

}  // namespace

InferenceCall::InferenceCall(rpc::Room& room, grpc::CallbackServerContext& context,
                             auth::Principal principal, std::string method, bool streaming,
                             const Parts& parts)
    : LiveCall(room, context, std::move(principal), kLongestGeneration),
      context_(context),
      method_(std::move(method)),
      streaming_(streaming),
      parts_(parts) {}

void InferenceCall::open() {
  LiveCall::open();
  StartRead(&request_);
}

void InferenceCall::OnReadDone(bool ok) {
  if (!ok && broken_off()) return end(rpc::client_cancelled());
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  base::Status status =
      ok ? read() : base::invalid_argument("MISSING_FIELD", "the call carries no request");
  if (status.ok()) status = route();
  if (!status.ok()) refuse(std::move(status));
}

// Every request of InferenceService names what shall answer by `model` and `adapter`.
base::Status InferenceCall::read() {
  const auto request = new_request(method_);
  grpc::ProtoBufferReader reader(&request_);
  if (!request || !reader.status().ok() || !request->ParseFromZeroCopyStream(&reader)) {
    const std::string type = request ? request->GetTypeName() : "request of " + method_;
    return base::invalid_argument("INVALID_FIELD",
                                  "the request is not a " + type + " in protobuf form");
  }
  model_ = text_of(*request, "model");
  adapter_ = text_of(*request, "adapter");
  return {};
}

bool InferenceCall::may_be_new(const base::Status& refusal) const {
  return refusal.reason() == "MODEL_NOT_FOUND" &&
         (adapter_.starts_with(kAdapterPrefix) || model_.starts_with(kAdapterPrefix));
}

base::Status InferenceCall::route() {
  while (true) {
    const auto table = parts_.routes.table();
    if (!table) return no_routes_yet();
    auto target = table->resolve(call().principal().tenant(), model_, adapter_);
    if (target.ok()) {
      target_ = std::move(target).value();
      candidates_ = table->workers(target_);
      if (!candidates_.empty() || gave_up_) return try_worker();
    } else if (gave_up_ || !may_be_new(target.status())) {
      return target.status();
    }
    if (wait_for_routes(table.get())) return {};
  }
}

bool InferenceCall::wait_for_routes(const RouteTable* known) {
  const std::weak_ptr<LiveCall> weak = weak_from_this();
  const auto with_call = [weak](void (InferenceCall::*then)()) {
    return [weak, then] {
      if (const auto live = weak.lock()) (static_cast<InferenceCall&>(*live).*then)();
    };
  };
  news_ = parts_.routes.on_newer(known, with_call(&InferenceCall::look_again));
  if (!news_) return false;
  // One patience for the whole wait, however many routes come that help nothing.
  if (!patience_) {
    patience_ = room_.timer().at(std::chrono::steady_clock::now() + parts_.route_patience,
                                 with_call(&InferenceCall::give_up));
  }
  return true;
}

void InferenceCall::stop_waiting() {
  if (news_) parts_.routes.forget(*news_);
  if (patience_) room_.timer().cancel(*patience_);
  news_.reset();
  patience_.reset();
}

void InferenceCall::look_again() {
  const std::lock_guard lock(mutex_);
  if (!news_) return;  // ended meanwhile
  news_.reset();
  base::Status status = route();
  if (!news_) stop_waiting();
  if (!status.ok()) refuse(std::move(status));
}

void InferenceCall::give_up() {
  const std::lock_guard lock(mutex_);
  if (!patience_) return;
  stop_waiting();
  gave_up_ = true;
  base::Status status = route();
  if (!status.ok()) refuse(std::move(status));
}

void InferenceCall::refuse(base::Status why) {
  parts_.metrics.rejected(why.reason());
  ended_ = std::move(why);
  finish_if_done();
}

base::Status InferenceCall::try_worker() {
  DEX_ASSIGN_OR_RETURN(auto place, parts_.balancer.pick(target_, candidates_, tried_));
  place_.emplace(std::move(place));
  upstream_ = new Upstream(*this, place_->channel(), method_);
  upstream_lives_ = true;
  headers_known_ = false;
  reading_ = true;
  auto& context = upstream_->context();
  hand_on(context_, call(), context);
  context.AddMetadata(rpc::kRoutedBaseHeader, target_.base);
  if (!target_.adapter.empty()) {
    context.AddMetadata(rpc::kRoutedAdapterHeader, target_.adapter);
    context.AddMetadata(rpc::kRoutedAdapterHashHeader, target_.content_sha256);
    context.AddMetadata(rpc::kRoutedAdapterPathHeader, target_.path);
    if (!target_.alias.empty()) context.AddMetadata(rpc::kRoutedAliasHeader, target_.alias);
  }
  upstream_->start();
  upstream_->StartWriteLast(&request_, {});
  return {};
}

void InferenceCall::on_headers(bool ok, const grpc::ClientContext& context) {
  const std::lock_guard lock(mutex_);
  headers_known_ = true;
  headers_ = ok ? headers_of(context) : MetadataList();
  hand_out();
}

void InferenceCall::on_reply(bool ok) {
  Upstream* through = nullptr;
  {
    const std::lock_guard lock(mutex_);
    reading_ = false;
    if (!ok) {
      std::swap(through, upstream_);
    } else {
      newest_ = upstream_->reply();  // shares the bytes
      if (!ended_) outbox_.push_back(std::move(upstream_->reply()));
      upstream_->reply().Clear();
      hand_out();
      read_on();
    }
  }
  if (through != nullptr) through->release();
}

void InferenceCall::read_on() {
  if (upstream_ == nullptr || reading_ || outbox_.size() >= kOutbox) return;
  reading_ = true;
  upstream_->StartRead(&upstream_->reply());
}

void InferenceCall::hand_out() {
  if (is_writing_ || outbox_.empty() || !headers_known_) return;
  const bool through = last_ && last_->ok();
  if (!committed_ && streaming_ && outbox_.size() < 2 && !through) return;
  if (!committed_) {
    for (auto& [name, value] : headers_) {
      context_.AddInitialMetadata(std::move(name), std::move(value));
    }
    committed_ = true;
  }
  writing_ = std::move(outbox_.front());
  outbox_.pop_front();
  is_writing_ = true;
  StartWrite(&writing_);
}

void InferenceCall::OnWriteDone(bool ok) {
  if (!ok) end(rpc::client_cancelled());
  const std::lock_guard lock(mutex_);
  is_writing_ = false;
  hand_out();
  read_on();
  finish_if_done();
}

bool InferenceCall::repeat(const grpc::Status& status) {
  if (committed_ || ended_ || !tried_.empty() || !lost(status)) return false;
  tried_ = place_->address();
  place_.reset();
  outbox_.clear();
  return try_worker().ok();
}

// A stream says it in its last message, a whole reply in itself; other methods say nothing.
void InferenceCall::count_tokens() const {
  v1::Usage usage;
  if (method_ == kGenerate) {
    v1::GenerateResponse reply;
    if (!parse(newest_, reply) || !reply.has_usage()) return;
    usage = reply.usage();
  } else if (method_ == kGenerateStream) {
    v1::GenerateStreamResponse reply;
    if (!parse(newest_, reply) || !reply.finish().has_usage()) return;
    usage = reply.finish().usage();
  } else {
    return;
  }
  parts_.uses.note_generation(call().principal().tenant(), usage.prompt_tokens(),
                              usage.completion_tokens());
}

grpc::Status InferenceCall::upstreams_word(const grpc::Status& status) const {
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && !rpc::has_error_info(status)) {
    return rpc::to_grpc(base::unavailable("ENGINE_LOST", "the worker that was answering is gone: " +
                                                             status.error_message()),
                        call().request_id());
  }
  return rpc::with_error_info(status, call().request_id());
}

void InferenceCall::on_end(const grpc::Status& status, const grpc::ClientContext& context) {
  const auto self = shared_from_this();  // Finish may end this object on another thread
  const std::lock_guard lock(mutex_);
  upstream_lives_ = false;
  if (repeat(status)) return;
  place_.reset();
  return_trailers(context, context_);
  last_ = upstreams_word(status);
  if (last_->ok()) count_tokens();
  if (!last_->ok() && !committed_) outbox_.clear();
  parts_.metrics.request(method_, last_->error_code());
  hand_out();
  finish_if_done();
}

void InferenceCall::end(base::Status why) {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  if (!ended_) ended_ = std::move(why);
  stop_waiting();
  outbox_.clear();
  if (upstream_ != nullptr) {
    upstream_->context().TryCancel();
    read_on();  // fails, and so leads to on_end
  }
  finish_if_done();
}

void InferenceCall::OnCancel() {
  end(rpc::client_cancelled());
}

void InferenceCall::finish_if_done() {
  if (finished_ || upstream_lives_ || is_writing_ || !outbox_.empty()) return;
  if (!ended_ && !last_) return;
  finished_ = true;
  Finish(ended_ ? rpc::to_grpc(*ended_, call().request_id()) : *last_);
}

}  // namespace dex::gateway
