#include "worker/agent/scheduler_client.h"

#include <chrono>

#include "services/rpc/channel.h"
#include "services/rpc/status.h"

namespace dex::agent {

namespace {

using std::chrono::milliseconds;
constexpr milliseconds kShort{5'000};
constexpr milliseconds kFinish{10'000};

template <typename Response, typename Request, typename Method>
base::Result<Response> call(Method method, iv1::WorkerService::Stub& stub, const Request& request,
                            milliseconds timeout, const std::stop_token& stop = {}) {
  grpc::ClientContext context;
  rpc::set_timeout(context, timeout);
  const std::stop_callback canceller(stop, [&context] { context.TryCancel(); });
  Response response;
  const grpc::Status status = (stub.*method)(&context, request, &response);
  if (!status.ok()) return rpc::from_grpc(status);
  return response;
}

}  // namespace

SchedulerClient::SchedulerClient(const std::string& address)
    : stub_(iv1::WorkerService::NewStub(rpc::channel(address))) {}

base::Result<iv1::RegisterResponse> SchedulerClient::register_worker(
    const iv1::RegisterRequest& request) {
  return call<iv1::RegisterResponse>(&iv1::WorkerService::Stub::Register, *stub_, request, kShort);
}

base::Result<iv1::ClaimResponse> SchedulerClient::claim(const iv1::ClaimRequest& request,
                                                        const std::stop_token& stop) {
  return call<iv1::ClaimResponse>(&iv1::WorkerService::Stub::Claim, *stub_, request,
                                  milliseconds(request.wait_ms()) + kShort, stop);
}

base::Result<iv1::HeartbeatResponse> SchedulerClient::heartbeat(
    const iv1::HeartbeatRequest& request) {
  return call<iv1::HeartbeatResponse>(&iv1::WorkerService::Stub::Heartbeat, *stub_, request,
                                      kShort);
}

base::Result<iv1::FinishResponse> SchedulerClient::finish(const iv1::FinishRequest& request) {
  return call<iv1::FinishResponse>(&iv1::WorkerService::Stub::Finish, *stub_, request, kFinish);
}

base::Status SchedulerClient::drain(const iv1::DrainRequest& request) {
  return call<iv1::DrainResponse>(&iv1::WorkerService::Stub::Drain, *stub_, request, kShort)
      .status();
}

bool no_answer(const base::Status& status) {
  switch (status.code()) {
    case base::Code::kUnavailable:
    case base::Code::kDeadlineExceeded:
    case base::Code::kInternal:
    case base::Code::kCancelled:
    case base::Code::kResourceExhausted:
      return true;
    default:
      return false;
  }
}

}  // namespace dex::agent
