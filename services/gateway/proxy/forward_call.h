#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "services/base/clock.h"
#include "services/gateway/metrics.h"
#include "services/gateway/proxy/audit_log.h"
#include "services/gateway/proxy/upstream.h"
#include "services/rpc/live_call.h"

namespace dex::gateway {

// A control-plane call on its way through, byte for byte, of any streaming kind: metadata,
// remaining deadline, messages, trailing metadata and error details are handed on; a client that
// leaves cancels the call behind. One message in each direction is held at a time, so gRPC's flow
// control reaches through. Owned by itself (LiveCall).
class ForwardCall final : public grpc::ServerGenericBidiReactor,
                          public rpc::LiveCall,
                          private Upstream::Owner {
 public:
  // `unary`: a drain lets it end by itself. `audit`: told of the call's end if it changes
  // something; null: nobody is. All referenced objects outlive the call.
  ForwardCall(rpc::Room& room, grpc::CallbackServerContext& context, auth::Principal principal,
              std::string method, bool unary, Metrics& metrics, AuditLog* audit);

  void open(const std::shared_ptr<grpc::Channel>& channel);
  void end(base::Status why) override;
  void drain() override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnSendInitialMetadataDone(bool /*ok*/) override {}
  void OnCancel() override;
  void OnDone() override { done(); }

 private:
  void on_headers(bool ok, const grpc::ClientContext& context) override;
  void on_sent(bool ok) override;
  void on_reply(bool ok) override;
  void on_end(const grpc::Status& status, const grpc::ClientContext& context) override;
  grpc::Status final_status(const grpc::Status& status);
  void tell_audit(const grpc::Status& last);

  grpc::CallbackServerContext& context_;
  const std::string method_;
  const bool unary_;
  Metrics& metrics_;
  AuditLog* const audit_;  // null: this call is none of its business
  const base::SystemClock clock_;
  std::mutex mutex_;
  Upstream* upstream_ = nullptr;  // null before open and when nothing may be started any more
  std::optional<base::Status>
      ended_;                 // why this call was ended here; wins over the upstream's word
  grpc::ByteBuffer request_;  // read from the client, being written upstream
  grpc::ByteBuffer first_request_, last_reply_;  // of a call that is audited
  bool headers_sent_ = false;
  bool reply_waits_ = false;  // a reply came before the headers did
};

}  // namespace dex::gateway
