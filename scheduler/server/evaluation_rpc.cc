#include "scheduler/server/evaluation_rpc.h"

#include "scheduler/server/evaluation_view.h"
#include "scheduler/server/rpc_parts.h"

namespace dex::server {

grpc::ServerUnaryReactor* EvaluationRpc::CreateEvaluation(Context* ctx,
                                                          const v1::CreateEvaluationRequest* in,
                                                          v1::Evaluation* out) {
  return rpc::run(room_, ctx, in, out, [=, this](rpc::Call& call) {
    return marked(call, evaluations_.create(call.principal(), *in));
  });
}

grpc::ServerUnaryReactor* EvaluationRpc::GetEvaluation(Context* ctx,
                                                       const v1::GetEvaluationRequest* in,
                                                       v1::Evaluation* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](rpc::Call& call) { return evaluations_.get(call.principal(), *in); });
}

grpc::ServerUnaryReactor* EvaluationRpc::ListEvaluations(Context* ctx,
                                                         const v1::ListEvaluationsRequest* in,
                                                         v1::ListEvaluationsResponse* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](rpc::Call& call) { return evaluations_.list(call.principal(), *in); });
}

grpc::ServerUnaryReactor* EvaluationRpc::CancelEvaluation(Context* ctx,
                                                          const v1::CancelEvaluationRequest* in,
                                                          v1::Evaluation* out) {
  return rpc::run(room_, ctx, in, out, [=, this](rpc::Call& call) {
    return marked(call, evaluations_.cancel(call.principal(), *in));
  });
}

grpc::ServerUnaryReactor* EvaluationRpc::DeleteEvaluation(Context* ctx,
                                                          const v1::DeleteEvaluationRequest* in,
                                                          v1::DeleteEvaluationResponse* out) {
  return rpc::run(room_, ctx, in, out, [=, this](rpc::Call& call) {
    return marked(call, evaluations_.remove(call.principal(), *in));
  });
}

grpc::ServerUnaryReactor* EvaluationRpc::ListEvaluationSamples(
    Context* ctx, const v1::ListEvaluationSamplesRequest* in,
    v1::ListEvaluationSamplesResponse* out) {
  return rpc::run(room_, ctx, in, out, [=, this](rpc::Call& call) {
    return evaluations_.samples(call.principal(), *in);
  });
}

grpc::ServerUnaryReactor* EvaluationRpc::CompareEvaluations(Context* ctx,
                                                            const v1::CompareEvaluationsRequest* in,
                                                            v1::CompareEvaluationsResponse* out) {
  return rpc::run(room_, ctx, in, out, [=, this](rpc::Call& call) {
    return evaluations_.compare(call.principal(), *in);
  });
}

grpc::ServerWriteReactor<v1::WatchEvaluationResponse>* EvaluationRpc::WatchEvaluation(
    Context* ctx, const v1::WatchEvaluationRequest* in) {
  return watch_job<v1::WatchEvaluationResponse>(
      room_, watches_, ctx, in, {"eval-", "evaluation", auth::Scope::kEvalRead},
      [](const store::JobRecord& record) { return evaluation_view(record); });
}

grpc::ServerWriteReactor<v1::DownloadEvaluationResponse>* EvaluationRpc::DownloadEvaluation(
    Context* ctx, const v1::DownloadEvaluationRequest* in) {
  using Message = v1::DownloadEvaluationResponse;
  return rpc::stream<Message>(
      room_, ctx, in,
      [this](std::shared_ptr<rpc::ServerStream<Message>> stream,
             const v1::DownloadEvaluationRequest& request) {
        stream->finish(
            evaluations_.download(stream->call().principal(), request, chunk_sink(*stream)));
      },
      download_options<Message>());
}

}  // namespace dex::server
