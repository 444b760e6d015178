#pragma once

#include "dex/v1/admin.grpc.pb.h"
#include "scheduler/server/api_keys.h"
#include "scheduler/server/diagnosis.h"
#include "scheduler/server/job_changes.h"
#include "scheduler/server/operations.h"
#include "scheduler/server/usage.h"
#include "services/rpc/room.h"

namespace dex::server {

// AdminService: a line a method, as in rpc_services.h.
class AdminRpc final : public v1::AdminService::CallbackService {
 public:
  // They outlive this object.
  AdminRpc(rpc::Room& room, JobChanges& changes, Diagnosis& diagnosis, Operations& operations,
           ApiKeys& keys, Usage& usage)
      : room_(room),
        changes_(changes),
        diagnosis_(diagnosis),
        operations_(operations),
        keys_(keys),
        usage_(usage) {}

  grpc::ServerUnaryReactor* RedriveFineTuningJob(grpc::CallbackServerContext* ctx,
                                                 const v1::RedriveFineTuningJobRequest* in,
                                                 v1::FineTuningJob* out) override;
  grpc::ServerUnaryReactor* GetHealth(grpc::CallbackServerContext* ctx,
                                      const v1::GetHealthRequest* in, v1::Health* out) override;
  grpc::ServerUnaryReactor* GetQuota(grpc::CallbackServerContext* ctx,
                                     const v1::GetQuotaRequest* in, v1::Quota* out) override;
  grpc::ServerUnaryReactor* SetQuota(grpc::CallbackServerContext* ctx,
                                     const v1::SetQuotaRequest* in, v1::Quota* out) override;
  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* ctx,
                                        const v1::ListWorkersRequest* in,
                                        v1::ListWorkersResponse* out) override;
  grpc::ServerUnaryReactor* UpdateWorker(grpc::CallbackServerContext* ctx,
                                         const v1::UpdateWorkerRequest* in,
                                         v1::Worker* out) override;
  grpc::ServerUnaryReactor* GetQueue(grpc::CallbackServerContext* ctx,
                                     const v1::GetQueueRequest* in, v1::Queue* out) override;
  grpc::ServerUnaryReactor* WhoAmI(grpc::CallbackServerContext* ctx, const v1::WhoAmIRequest* in,
                                   v1::Caller* out) override;
  grpc::ServerUnaryReactor* CreateApiKey(grpc::CallbackServerContext* ctx,
                                         const v1::CreateApiKeyRequest* in,
                                         v1::ApiKey* out) override;
  grpc::ServerUnaryReactor* ListApiKeys(grpc::CallbackServerContext* ctx,
                                        const v1::ListApiKeysRequest* in,
                                        v1::ListApiKeysResponse* out) override;
  grpc::ServerUnaryReactor* RevokeApiKey(grpc::CallbackServerContext* ctx,
                                         const v1::RevokeApiKeyRequest* in,
                                         v1::ApiKey* out) override;
  grpc::ServerUnaryReactor* GetUsage(grpc::CallbackServerContext* ctx,
                                     const v1::GetUsageRequest* in,
                                     v1::GetUsageResponse* out) override;

 private:
  rpc::Room& room_;
  JobChanges& changes_;
  Diagnosis& diagnosis_;
  Operations& operations_;
  ApiKeys& keys_;
  Usage& usage_;
};

}  // namespace dex::server
