#pragma once

#include "dex/v1/evaluation.grpc.pb.h"
#include "scheduler/server/evaluations.h"
#include "scheduler/server/job_watches.h"
#include "services/rpc/room.h"

namespace dex::server {

// EvaluationService over gRPC, a line a method. What the constructor takes outlives it.
class EvaluationRpc final : public v1::EvaluationService::CallbackService {
 public:
  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;
  EvaluationRpc(rpc::Room& room, Evaluations& evaluations, JobWatches& watches)
      : room_(room), evaluations_(evaluations), watches_(watches) {}

  Unary* CreateEvaluation(Context* ctx, const v1::CreateEvaluationRequest* in,
                          v1::Evaluation* out) override;
  Unary* GetEvaluation(Context* ctx, const v1::GetEvaluationRequest* in,
                       v1::Evaluation* out) override;
  Unary* ListEvaluations(Context* ctx, const v1::ListEvaluationsRequest* in,
                         v1::ListEvaluationsResponse* out) override;
  Unary* CancelEvaluation(Context* ctx, const v1::CancelEvaluationRequest* in,
                          v1::Evaluation* out) override;
  Unary* DeleteEvaluation(Context* ctx, const v1::DeleteEvaluationRequest* in,
                          v1::DeleteEvaluationResponse* out) override;
  Unary* ListEvaluationSamples(Context* ctx, const v1::ListEvaluationSamplesRequest* in,
                               v1::ListEvaluationSamplesResponse* out) override;
  Unary* CompareEvaluations(Context* ctx, const v1::CompareEvaluationsRequest* in,
                            v1::CompareEvaluationsResponse* out) override;
  grpc::ServerWriteReactor<v1::WatchEvaluationResponse>* WatchEvaluation(
      Context* ctx, const v1::WatchEvaluationRequest* in) override;
  grpc::ServerWriteReactor<v1::DownloadEvaluationResponse>* DownloadEvaluation(
      Context* ctx, const v1::DownloadEvaluationRequest* in) override;

 private:
  rpc::Room& room_;
  Evaluations& evaluations_;
  JobWatches& watches_;
};

}  // namespace dex::server
