#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>
#include <utility>

#include "dex/v1/admin.pb.h"
#include "services/base/clock.h"
#include "services/base/status.h"
#include "services/gateway/metrics.h"
#include "services/gateway/proxy/admission.h"
#include "services/gateway/routing/route_watcher.h"
#include "services/rpc/call.h"
#include "services/rpc/room.h"

namespace dex::gateway {

// AdminService.GetHealth at the gateway: what the scheduler finds, and what only a gateway can see:
// whether each worker that it routes to answers just now, over a new connection. A worker's record
// says that it beats, not that it can be reached. Answers also when the scheduler is away.
// Thread-safe.
class HealthAnswer {
 public:
  static constexpr const char* kPath = "/dex.v1.AdminService/GetHealth";

  struct Parts {  // all outlive this object
    rpc::Room& room;
    std::shared_ptr<grpc::Channel> scheduler;
    const RouteWatcher& routes;
    Metrics& metrics;
    Admission& admission;
    std::string version, commit;  // of this gateway, for answers without a scheduler
  };
  explicit HealthAnswer(Parts parts) : parts_(std::move(parts)) {}

  // The reactor that answers one call, on a thread of the room.
  grpc::ServerUnaryReactor* open(grpc::CallbackServerContext* context,
                                 const v1::GetHealthRequest* in, v1::Health* out);

 private:
  base::Result<v1::Health> answer(const grpc::CallbackServerContext& context,
                                  const rpc::Call& call);
  // What it says, or that it says nothing; an error is its own word.
  base::Result<v1::Health> ask_scheduler(const grpc::CallbackServerContext& context,
                                         const rpc::Call& call);

  const Parts parts_;
  base::SystemClock clock_;
};

}  // namespace dex::gateway
