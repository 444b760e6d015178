#include "services/gateway/proxy/forward_call.h"

#include "services/gateway/proxy/metadata.h"
#include "services/gateway/proxy/public_services.h"
#include "services/rpc/status.h"

namespace dex::gateway {

ForwardCall::ForwardCall(rpc::Room& room, grpc::CallbackServerContext& context,
                         auth::Principal principal, std::string method, bool unary,
                         Metrics& metrics, AuditLog* audit)
    : LiveCall(room, context, std::move(principal), std::nullopt),
      context_(context),
      method_(std::move(method)),
      unary_(unary),
      metrics_(metrics),
      audit_(changes_state(method_) ? audit : nullptr) {}

void ForwardCall::open(const std::shared_ptr<grpc::Channel>& channel) {
  LiveCall::open();
  const std::lock_guard lock(mutex_);
  upstream_ = new Upstream(*this, channel, method_);
  hand_on(context_, call(), upstream_->context());
  if (ended_) upstream_->context().TryCancel();
  upstream_->start();
  StartRead(&request_);
}

void ForwardCall::end(base::Status why) {
  const std::lock_guard lock(mutex_);
  if (!ended_) ended_ = std::move(why);
  // on_end follows soon, and answers.
  if (upstream_ != nullptr) upstream_->context().TryCancel();
}

void ForwardCall::drain() {
  if (!unary_) end(rpc::server_draining());
}

void ForwardCall::OnReadDone(bool ok) {
  if (!ok && broken_off()) return end(rpc::client_cancelled());
  const std::lock_guard lock(mutex_);
  if (upstream_ == nullptr) return;
  if (ok) {
    if (audit_ != nullptr && unary_) first_request_ = request_;  // shares the bytes
    upstream_->StartWrite(&request_);
  } else {
    upstream_->StartWritesDone();
  }
}

void ForwardCall::on_sent(bool ok) {
  if (ok) StartRead(&request_);  // not ok: the upstream has ended, its status is on the way
}

void ForwardCall::on_headers(bool ok, const grpc::ClientContext& context) {
  if (!ok) return;
  const std::lock_guard lock(mutex_);
  for (auto& [name, value] : headers_of(context)) {
    context_.AddInitialMetadata(std::move(name), std::move(value));
  }
  headers_sent_ = true;
  StartSendInitialMetadata();
  if (reply_waits_) StartWrite(&upstream_->reply());
}

void ForwardCall::on_reply(bool ok) {
  Upstream* through = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (ok && audit_ != nullptr) last_reply_ = upstream_->reply();
    if (ok && headers_sent_) StartWrite(&upstream_->reply());
    if (ok) reply_waits_ = !headers_sent_;
    if (!ok) std::swap(through, upstream_);
  }
  if (through != nullptr) through->release();
}

void ForwardCall::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  if (!ok) upstream_->context().TryCancel();
  // After a cancellation this read fails, and on_reply(false) closes the upstream.
  upstream_->StartRead(&upstream_->reply());
}

void ForwardCall::OnCancel() {
  end(rpc::client_cancelled());
}

grpc::Status ForwardCall::final_status(const grpc::Status& status) {
  if (ended_) return rpc::to_grpc(*ended_, call().request_id());
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && !rpc::has_error_info(status)) {
    return rpc::to_grpc(base::unavailable("STORE_UNAVAILABLE", "the scheduler does not answer: " +
                                                                   status.error_message()),
                        call().request_id());
  }
  return rpc::with_error_info(status, call().request_id());
}

// Before the client has its answer: who was told that something is done finds it in the log.
void ForwardCall::tell_audit(const grpc::Status& last) {
  if (audit_ == nullptr) return;
  const auth::Principal& caller = call().principal();
  const auto slash = method_.rfind('/');
  const auto dot = method_.rfind('.', slash);
  audit_->write({clock_.now_ms(), caller.tenant(), caller.key(),
                 method_.substr(dot + 1, slash - dot - 1) + "." + method_.substr(slash + 1),
                 audited_object(method_, first_request_, last_reply_), call().request_id(),
                 last.ok() ? "OK" : rpc::from_grpc(last).reason()});
}

void ForwardCall::on_end(const grpc::Status& status, const grpc::ClientContext& context) {
  const auto self = shared_from_this();  // Finish may end this object on another thread
  grpc::Status last;
  {
    const std::lock_guard lock(mutex_);
    return_trailers(context, context_);
    last = final_status(status);
    metrics_.request(method_, last.error_code());
  }
  tell_audit(last);  // writes to a file; nothing else of this call runs any more
  Finish(last);
}

}  // namespace dex::gateway
