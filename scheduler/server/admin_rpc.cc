#include "scheduler/server/admin_rpc.h"

#include "scheduler/server/rpc_parts.h"

namespace dex::server {

grpc::ServerUnaryReactor* AdminRpc::RedriveFineTuningJob(grpc::CallbackServerContext* ctx,
                                                         const v1::RedriveFineTuningJobRequest* in,
                                                         v1::FineTuningJob* out) {
  return rpc::run(room_, ctx, in, out, [=, this](rpc::Call& call) {
    return marked(call, changes_.redrive(call.principal(), *in));
  });
}

grpc::ServerUnaryReactor* AdminRpc::GetHealth(grpc::CallbackServerContext* ctx,
                                              const v1::GetHealthRequest* in, v1::Health* out) {
  return rpc::run(room_, ctx, in, out,
                  [this](rpc::Call& call) { return diagnosis_.health(call.principal()); });
}

}  // namespace dex::server
