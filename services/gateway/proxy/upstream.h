#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <memory>
#include <string>

namespace dex::gateway {

// One call to a server behind the gateway, in bytes, of any streaming kind. It deletes itself after
// on_end; its owner must live that long. Callbacks come one after another or at the same time on
// gRPC's threads; the owner locks.
//
// Operations are started by the owner from its own callbacks, which gRPC allows only under a hold;
// release() gives it back and must be called exactly once, when on_reply(false) has come: from then
// on nothing may be started.
class Upstream final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  class Owner {
   public:
    // Not ok: a status without headers follows. Else the context's initial metadata may be read.
    virtual void on_headers(bool ok, const grpc::ClientContext& context) = 0;
    virtual void on_sent(bool ok) = 0;   // a StartWrite ended
    virtual void on_reply(bool ok) = 0;  // a StartRead(&reply()) ended; false: no more come
    virtual void on_end(const grpc::Status& status,
                        const grpc::ClientContext& context) = 0;  // the last callback

   protected:
    ~Owner() = default;
  };

  // `channel` stays with the call until its end. Set metadata and deadline on context(), then
  // start().
  Upstream(Owner& owner, std::shared_ptr<grpc::Channel> channel, std::string method)
      : owner_(owner), channel_(std::move(channel)), method_(std::move(method)) {}

  grpc::ClientContext& context() { return context_; }
  grpc::ByteBuffer& reply() { return reply_; }

  // Starts the call and its first read.
  void start() {
    grpc::GenericStub(channel_).PrepareBidiStreamingCall(&context_, method_, {}, this);
    AddHold();
    StartRead(&reply_);
    StartCall();
  }
  void release() { RemoveHold(); }

  void OnReadInitialMetadataDone(bool ok) override { owner_.on_headers(ok, context_); }
  void OnWriteDone(bool ok) override { owner_.on_sent(ok); }
  void OnReadDone(bool ok) override { owner_.on_reply(ok); }
  void OnDone(const grpc::Status& status) override {
    owner_.on_end(status, context_);
    delete this;
  }

 private:
  ~Upstream() override = default;

  Owner& owner_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::string method_;
  grpc::ClientContext context_;
  grpc::ByteBuffer reply_;
};

}  // namespace dex::gateway
