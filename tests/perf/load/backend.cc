#include "tests/perf/load/backend.h"

#include <grpcpp/server_builder.h>

#include <stdexcept>

namespace dex::perf {

// One token stream: what is due is written as soon as the write before it is done.
class Backend::Stream final : public grpc::ServerWriteReactor<v1::GenerateStreamResponse> {
 public:
  Stream(Backend& backend, uint32_t tokens) : backend_(backend), left_(tokens) {
    message_.mutable_start()->set_id("perf");
    message_.mutable_start()->set_model(kModel);
    StartWrite(&message_);
    const std::lock_guard lock(backend_.mutex_);
    backend_.streams_.insert(this);
  }
  void tick() {
    const std::lock_guard lock(mutex_);
    if (left_ == 0) return;
    --left_;
    ++due_;
    proceed_locked();
  }
  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) left_ = due_ = 0, told_ = true;
    proceed_locked();
  }
  void OnCancel() override {
    const std::lock_guard lock(mutex_);
    left_ = due_ = 0;
    told_ = true;
    proceed_locked();
  }
  void OnDone() override {
    {
      const std::lock_guard lock(backend_.mutex_);  // no tick() after this
      backend_.streams_.erase(this);
    }
    delete this;
  }

 private:
  void proceed_locked() {
    if (writing_ || ended_) return;
    if (due_ > 0) {
      --due_;
      message_.mutable_delta()->set_text(" word");
    } else if (left_ == 0 && !told_) {
      told_ = true;
      message_.mutable_finish()->set_finish_reason(v1::FINISH_REASON_LENGTH);
    } else {
      if (left_ > 0) return;
      ended_ = true;
      return Finish(grpc::Status::OK);
    }
    writing_ = true;
    StartWrite(&message_);
  }

  Backend& backend_;
  std::mutex mutex_;
  uint32_t left_;        // tokens that are not due yet
  uint32_t due_ = 0;     // … that are, and not written
  bool writing_ = true;  // the start, from the constructor on
  bool told_ = false;    // finish is written
  bool ended_ = false;   // the call is
  v1::GenerateStreamResponse message_;
};

// The one snapshot; then nothing until the gateway goes.
class Backend::Routes final : public grpc::ServerWriteReactor<internal::v1::RouteSnapshot> {
 public:
  explicit Routes(const std::string& worker) {
    snapshot_.set_revision(1);
    snapshot_.add_bases(kModel);
    auto* route = snapshot_.add_routes();
    route->set_worker("perf");
    route->set_inference_address(worker);
    route->set_base(kModel);
    StartWrite(&snapshot_);
  }
  void OnCancel() override { Finish(grpc::Status::CANCELLED); }
  void OnDone() override { delete this; }

 private:
  internal::v1::RouteSnapshot snapshot_;
};

grpc::ServerUnaryReactor* Backend::Inference::Generate(grpc::CallbackServerContext* context,
                                                       const v1::GenerateRequest* in,
                                                       v1::GenerateResponse* out) {
  out->set_text(in->prompt());
  auto* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<v1::GenerateStreamResponse>* Backend::Inference::GenerateStream(
    grpc::CallbackServerContext* /*context*/, const v1::GenerateRequest* in) {
  return new Stream(backend_, in->max_tokens());
}

grpc::ServerWriteReactor<internal::v1::RouteSnapshot>* Backend::Scheduler::WatchRoutes(
    grpc::CallbackServerContext* /*context*/, const internal::v1::WatchRoutesRequest* /*in*/) {
  return new Routes(backend_.address_);
}

Backend::Backend(std::chrono::microseconds pace) : pace_(pace) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  // A gateway pings every 30 s, also without calls; gRPC's default takes that for an attack.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.RegisterService(&inference_);
  builder.RegisterService(&scheduler_);
  server_ = builder.BuildAndStart();
  if (!server_ || port == 0) throw std::runtime_error("the backend can't listen on 127.0.0.1");
  address_ = "127.0.0.1:" + std::to_string(port);
  ticking_ = std::jthread([this](const std::stop_token& stop) {
    auto next = std::chrono::steady_clock::now();
    while (!stop.stop_requested()) {
      next += pace_;
      std::this_thread::sleep_until(next);
      const std::lock_guard lock(mutex_);
      for (Stream* stream : streams_) stream->tick();
    }
  });
}

Backend::~Backend() {
  server_->Shutdown(std::chrono::system_clock::now());
  ticking_.request_stop();
  ticking_.join();
}

}  // namespace dex::perf
