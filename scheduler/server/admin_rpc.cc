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

grpc::ServerUnaryReactor* AdminRpc::GetQuota(grpc::CallbackServerContext* ctx,
                                             const v1::GetQuotaRequest* in, v1::Quota* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](rpc::Call& call) { return operations_.quota(call.principal(), *in); });
}

grpc::ServerUnaryReactor* AdminRpc::SetQuota(grpc::CallbackServerContext* ctx,
                                             const v1::SetQuotaRequest* in, v1::Quota* out) {
  return rpc::run(room_, ctx, in, out, [=, this](rpc::Call& call) {
    return marked(call, operations_.set_quota(call.principal(), *in));
  });
}

grpc::ServerUnaryReactor* AdminRpc::ListWorkers(grpc::CallbackServerContext* ctx,
                                                const v1::ListWorkersRequest* in,
                                                v1::ListWorkersResponse* out) {
  return rpc::run(room_, ctx, in, out, [=, this](rpc::Call& call) {
    return operations_.list_workers(call.principal(), *in);
  });
}

grpc::ServerUnaryReactor* AdminRpc::UpdateWorker(grpc::CallbackServerContext* ctx,
                                                 const v1::UpdateWorkerRequest* in,
                                                 v1::Worker* out) {
  return rpc::run(room_, ctx, in, out, [=, this](rpc::Call& call) {
    return marked(call, operations_.update_worker(call.principal(), *in));
  });
}

grpc::ServerUnaryReactor* AdminRpc::GetQueue(grpc::CallbackServerContext* ctx,
                                             const v1::GetQueueRequest* in, v1::Queue* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](rpc::Call& call) { return operations_.queue(call.principal(), *in); });
}

grpc::ServerUnaryReactor* AdminRpc::WhoAmI(grpc::CallbackServerContext* ctx,
                                           const v1::WhoAmIRequest* in, v1::Caller* out) {
  return rpc::run(room_, ctx, in, out, [](rpc::Call& call) -> base::Result<v1::Caller> {
    return ApiKeys::who_am_i(call.principal());
  });
}

grpc::ServerUnaryReactor* AdminRpc::CreateApiKey(grpc::CallbackServerContext* ctx,
                                                 const v1::CreateApiKeyRequest* in,
                                                 v1::ApiKey* out) {
  return rpc::run(room_, ctx, in, out, [=, this](rpc::Call& call) {
    return marked(call, keys_.create(call.principal(), *in));
  });
}

grpc::ServerUnaryReactor* AdminRpc::ListApiKeys(grpc::CallbackServerContext* ctx,
                                                const v1::ListApiKeysRequest* in,
                                                v1::ListApiKeysResponse* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](rpc::Call& call) { return keys_.list(call.principal(), *in); });
}

grpc::ServerUnaryReactor* AdminRpc::RevokeApiKey(grpc::CallbackServerContext* ctx,
                                                 const v1::RevokeApiKeyRequest* in,
                                                 v1::ApiKey* out) {
  return rpc::run(room_, ctx, in, out, [=, this](rpc::Call& call) {
    return marked(call, keys_.revoke(call.principal(), *in));
  });
}

grpc::ServerUnaryReactor* AdminRpc::GetUsage(grpc::CallbackServerContext* ctx,
                                             const v1::GetUsageRequest* in,
                                             v1::GetUsageResponse* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](rpc::Call& call) { return usage_.get(call.principal(), *in); });
}

}  // namespace dex::server
