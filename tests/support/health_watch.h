#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "services/rpc/channel.h"
#include "tests/support/eventually.h"

namespace dex::support {

// What the standard health service says of a server as a whole, from now until end(): an open
// Health/Watch, in bytes, since nothing here is generated from its proto. Such a call outlasts the
// server's wish to stop: as long as it is open the process lives on, at most for its grace.
class HealthWatch : private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  enum class Health { kNothingYet = 0, kServing = 1, kNotServing = 2 };  // as in its proto

  explicit HealthWatch(const std::string& address)
      : channel_(rpc::channel(address)), request_(&nothing_, 1) {
    rpc::set_timeout(context_, std::chrono::minutes(2));
    grpc::GenericStub(channel_).PrepareBidiStreamingCall(&context_, "/grpc.health.v1.Health/Watch",
                                                         {}, this);
    StartWriteLast(&request_, {});  // no name: the whole server
    StartRead(&reply_);
    StartCall();
  }
  ~HealthWatch() override { end(); }
  HealthWatch(const HealthWatch&) = delete;
  HealthWatch& operator=(const HealthWatch&) = delete;

  // Its newest word is this one, now or soon.
  bool says(Health health, int64_t limit_ms = kPatience_ms) const {
    return eventually([&] { return newest_ == health; }, limit_ms);
  }
  // May be called again.
  void end() {
    context_.TryCancel();
    over_.wait();
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    std::vector<grpc::Slice> slices;
    if (reply_.Dump(&slices).ok() && !slices.empty() && slices.back().size() > 0) {
      // HealthCheckResponse{status = 1}: the byte behind its tag.
      newest_ = static_cast<Health>(slices.back().end()[-1]);
    }
    StartRead(&reply_);
  }
  void OnDone(const grpc::Status& /*status*/) override { ended_.set_value(); }

  const std::shared_ptr<grpc::Channel> channel_;
  const grpc::Slice nothing_;
  const grpc::ByteBuffer request_;
  grpc::ByteBuffer reply_;
  grpc::ClientContext context_;
  std::atomic<Health> newest_ = Health::kNothingYet;
  std::promise<void> ended_;
  const std::future<void> over_ = ended_.get_future();
};

}  // namespace dex::support
