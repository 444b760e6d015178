#pragma once

#include "dex/v1/admin.grpc.pb.h"
#include "scheduler/server/diagnosis.h"
#include "scheduler/server/job_changes.h"
#include "services/rpc/room.h"

namespace dex::server {

// AdminService: a line a method, as in rpc_services.h.
class AdminRpc final : public v1::AdminService::CallbackService {
 public:
  AdminRpc(rpc::Room& room, JobChanges& changes, Diagnosis& diagnosis)  // outlive this object
      : room_(room), changes_(changes), diagnosis_(diagnosis) {}

  grpc::ServerUnaryReactor* RedriveFineTuningJob(grpc::CallbackServerContext* ctx,
                                                 const v1::RedriveFineTuningJobRequest* in,
                                                 v1::FineTuningJob* out) override;
  grpc::ServerUnaryReactor* GetHealth(grpc::CallbackServerContext* ctx,
                                      const v1::GetHealthRequest* in, v1::Health* out) override;

 private:
  rpc::Room& room_;
  JobChanges& changes_;
  Diagnosis& diagnosis_;
};

}  // namespace dex::server
