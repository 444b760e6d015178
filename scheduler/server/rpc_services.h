#pragma once

#include <memory>

#include "dex/internal/v1/routes.grpc.pb.h"
#include "dex/internal/v1/worker.grpc.pb.h"
#include "dex/v1/files.grpc.pb.h"
#include "dex/v1/finetuning.grpc.pb.h"
#include "dex/v1/models.grpc.pb.h"
#include "scheduler/server/api_keys.h"
#include "scheduler/server/file_checks.h"
#include "scheduler/server/files.h"
#include "scheduler/server/fine_tuning_jobs.h"
#include "scheduler/server/head_previews.h"
#include "scheduler/server/job_batches.h"
#include "scheduler/server/job_changes.h"
#include "scheduler/server/job_watches.h"
#include "scheduler/server/memory_probes.h"
#include "scheduler/server/models.h"
#include "scheduler/server/routes.h"
#include "scheduler/server/usage.h"
#include "scheduler/server/waiters.h"
#include "scheduler/server/workers.h"
#include "services/rpc/room.h"

// The classes of this room as gRPC services: a line a method; services/rpc brings admission,
// deadlines, error details and metrics. What the constructors take outlives the services.
namespace dex::server {

using Context = grpc::CallbackServerContext;
using Unary = grpc::ServerUnaryReactor;

class FineTuningRpc final : public v1::FineTuningService::CallbackService {
 public:
  FineTuningRpc(rpc::Room& room, FineTuningJobs& jobs, JobBatches& batches, JobChanges& changes,
                JobWatches& watches, HeadPreviews& previews, MemoryProbes& probes, Waiters& waiters)
      : room_(room),
        jobs_(jobs),
        batches_(batches),
        changes_(changes),
        watches_(watches),
        previews_(previews),
        probes_(probes),
        waiters_(waiters) {}

  Unary* CreateFineTuningJob(Context* ctx, const v1::CreateFineTuningJobRequest* in,
                             v1::FineTuningJob* out) override;
  Unary* BatchCreateFineTuningJobs(Context* ctx, const v1::BatchCreateFineTuningJobsRequest* in,
                                   v1::BatchCreateFineTuningJobsResponse* out) override;
  Unary* GetFineTuningJob(Context* ctx, const v1::GetFineTuningJobRequest* in,
                          v1::FineTuningJob* out) override;
  Unary* ListFineTuningJobs(Context* ctx, const v1::ListFineTuningJobsRequest* in,
                            v1::ListFineTuningJobsResponse* out) override;
  Unary* CancelFineTuningJob(Context* ctx, const v1::CancelFineTuningJobRequest* in,
                             v1::FineTuningJob* out) override;
  Unary* PauseFineTuningJob(Context* ctx, const v1::PauseFineTuningJobRequest* in,
                            v1::FineTuningJob* out) override;
  Unary* ResumeFineTuningJob(Context* ctx, const v1::ResumeFineTuningJobRequest* in,
                             v1::FineTuningJob* out) override;
  Unary* UpdateFineTuningJob(Context* ctx, const v1::UpdateFineTuningJobRequest* in,
                             v1::FineTuningJob* out) override;
  Unary* DeleteFineTuningJob(Context* ctx, const v1::DeleteFineTuningJobRequest* in,
                             v1::DeleteFineTuningJobResponse* out) override;
  Unary* CreateCheckpoint(Context* ctx, const v1::CreateCheckpointRequest* in,
                          v1::Checkpoint* out) override;
  Unary* ListFineTuningCheckpoints(Context* ctx, const v1::ListFineTuningCheckpointsRequest* in,
                                   v1::ListFineTuningCheckpointsResponse* out) override;
  Unary* EstimateFineTuningJob(Context* ctx, const v1::EstimateFineTuningJobRequest* in,
                               v1::Estimate* out) override;
  Unary* PreviewHeadSelection(Context* ctx, const v1::PreviewHeadSelectionRequest* in,
                              v1::HeadSelectionReport* out) override;
  Unary* ListFineTuningEvents(Context* ctx, const v1::ListFineTuningEventsRequest* in,
                              v1::ListFineTuningEventsResponse* out) override;
  grpc::ServerWriteReactor<v1::WatchFineTuningJobResponse>* WatchFineTuningJob(
      Context* ctx, const v1::WatchFineTuningJobRequest* in) override;

 private:
  rpc::Room& room_;
  FineTuningJobs& jobs_;
  JobBatches& batches_;
  JobChanges& changes_;
  JobWatches& watches_;
  HeadPreviews& previews_;
  MemoryProbes& probes_;
  Waiters& waiters_;
};

class FileRpc final : public v1::FileService::CallbackService {
 public:
  FileRpc(rpc::Room& room, Files& files, FileChecks& checks)
      : room_(room), files_(files), checks_(checks) {}

  grpc::ServerReadReactor<v1::UploadFileRequest>* UploadFile(Context* ctx, v1::File* out) override;
  Unary* GetFile(Context* ctx, const v1::GetFileRequest* in, v1::File* out) override;
  Unary* ListFiles(Context* ctx, const v1::ListFilesRequest* in,
                   v1::ListFilesResponse* out) override;
  Unary* ListFindings(Context* ctx, const v1::ListFindingsRequest* in,
                      v1::ListFindingsResponse* out) override;
  grpc::ServerWriteReactor<v1::DownloadFileResponse>* DownloadFile(
      Context* ctx, const v1::DownloadFileRequest* in) override;
  grpc::ServerWriteReactor<v1::ValidateFileResponse>* ValidateFile(
      Context* ctx, const v1::ValidateFileRequest* in) override;
  Unary* PreviewFile(Context* ctx, const v1::PreviewFileRequest* in,
                     v1::PreviewFileResponse* out) override;
  Unary* DeleteFile(Context* ctx, const v1::DeleteFileRequest* in,
                    v1::DeleteFileResponse* out) override;

 private:
  rpc::Room& room_;
  Files& files_;
  FileChecks& checks_;
};

class ModelRpc final : public v1::ModelService::CallbackService {
 public:
  ModelRpc(rpc::Room& room, Models& models) : room_(room), models_(models) {}

  Unary* ListModels(Context* ctx, const v1::ListModelsRequest* in,
                    v1::ListModelsResponse* out) override;
  Unary* GetModel(Context* ctx, const v1::GetModelRequest* in, v1::Model* out) override;
  Unary* ListPresets(Context* ctx, const v1::ListPresetsRequest* in,
                     v1::ListPresetsResponse* out) override;
  Unary* GetPreset(Context* ctx, const v1::GetPresetRequest* in, v1::Preset* out) override;
  Unary* GetServerCapabilities(Context* ctx, const v1::GetServerCapabilitiesRequest* in,
                               v1::ServerCapabilities* out) override;
  Unary* GetModelLimits(Context* ctx, const v1::GetModelLimitsRequest* in,
                        v1::ModelLimits* out) override;

 private:
  rpc::Room& room_;
  Models& models_;
};

class RouteRpc final : public iv1::RouteService::CallbackService {
 public:
  RouteRpc(rpc::Room& room, Routes& routes, ApiKeys& keys, Usage& usage)
      : room_(room), routes_(routes), keys_(keys), usage_(usage) {}
  grpc::ServerWriteReactor<iv1::RouteSnapshot>* WatchRoutes(
      Context* ctx, const iv1::WatchRoutesRequest* in) override;
  Unary* ReportUse(Context* ctx, const iv1::ReportUseRequest* in,
                   iv1::ReportUseResponse* out) override;

 private:
  rpc::Room& room_;
  Routes& routes_;
  ApiKeys& keys_;
  Usage& usage_;
};

class WorkerRpc final : public iv1::WorkerService::CallbackService {
 public:
  WorkerRpc(rpc::Room& room, Workers& workers, Waiters& waiters)
      : room_(room), workers_(workers), waiters_(waiters) {}

  Unary* Register(Context* ctx, const iv1::RegisterRequest* in,
                  iv1::RegisterResponse* out) override;
  Unary* Claim(Context* ctx, const iv1::ClaimRequest* in, iv1::ClaimResponse* out) override;
  Unary* Heartbeat(Context* ctx, const iv1::HeartbeatRequest* in,
                   iv1::HeartbeatResponse* out) override;
  Unary* Finish(Context* ctx, const iv1::FinishRequest* in, iv1::FinishResponse* out) override;
  Unary* Drain(Context* ctx, const iv1::DrainRequest* in, iv1::DrainResponse* out) override;

 private:
  rpc::Room& room_;
  Workers& workers_;
  Waiters& waiters_;
};

}  // namespace dex::server
