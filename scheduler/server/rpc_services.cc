#include "scheduler/server/rpc_services.h"

#include "scheduler/server/job_view.h"
#include "scheduler/server/rpc_parts.h"
#include "services/rpc/stream.h"
#include "services/rpc/unary.h"
#include "services/rpc/upload.h"

namespace dex::server {

using rpc::Call;
using std::chrono::milliseconds;

// ---- FineTuningService ----

Unary* FineTuningRpc::CreateFineTuningJob(Context* ctx, const v1::CreateFineTuningJobRequest* in,
                                          v1::FineTuningJob* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call& call) {
    return marked(call, jobs_.create(call.principal(), *in));
  });
}

Unary* FineTuningRpc::BatchCreateFineTuningJobs(Context* ctx,
                                                const v1::BatchCreateFineTuningJobsRequest* in,
                                                v1::BatchCreateFineTuningJobsResponse* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call& call) {
    return marked(call, batches_.create(call.principal(), *in));
  });
}

Unary* FineTuningRpc::GetFineTuningJob(Context* ctx, const v1::GetFineTuningJobRequest* in,
                                       v1::FineTuningJob* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](Call& call) { return jobs_.get(call.principal(), *in); });
}

Unary* FineTuningRpc::ListFineTuningJobs(Context* ctx, const v1::ListFineTuningJobsRequest* in,
                                         v1::ListFineTuningJobsResponse* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](Call& call) { return jobs_.list(call.principal(), *in); });
}

Unary* FineTuningRpc::CancelFineTuningJob(Context* ctx, const v1::CancelFineTuningJobRequest* in,
                                          v1::FineTuningJob* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call& call) {
    return marked(call, jobs_.cancel(call.principal(), *in));
  });
}

Unary* FineTuningRpc::PauseFineTuningJob(Context* ctx, const v1::PauseFineTuningJobRequest* in,
                                         v1::FineTuningJob* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call& call) {
    return marked(call, changes_.pause(call.principal(), *in));
  });
}

Unary* FineTuningRpc::ResumeFineTuningJob(Context* ctx, const v1::ResumeFineTuningJobRequest* in,
                                          v1::FineTuningJob* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call& call) {
    return marked(call, changes_.resume(call.principal(), *in));
  });
}

Unary* FineTuningRpc::UpdateFineTuningJob(Context* ctx, const v1::UpdateFineTuningJobRequest* in,
                                          v1::FineTuningJob* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call& call) {
    return marked(call, changes_.update(call.principal(), *in));
  });
}

Unary* FineTuningRpc::DeleteFineTuningJob(Context* ctx, const v1::DeleteFineTuningJobRequest* in,
                                          v1::DeleteFineTuningJobResponse* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call& call) {
    return marked(call, changes_.remove(call.principal(), *in));
  });
}

Unary* FineTuningRpc::CreateCheckpoint(Context* ctx, const v1::CreateCheckpointRequest* in,
                                       v1::Checkpoint* out) {
  using Pending = rpc::Pending<v1::Checkpoint>;
  const auto starter = [this](std::shared_ptr<Pending> pending,
                              const v1::CreateCheckpointRequest& request) {
    const auto who = pending->call().principal();
    const auto asked = changes_.ask_checkpoint(who, request);
    if (!asked.ok()) return pending->answer(asked.status());
    if (asked->replayed) pending->call().add_trailer("dex-replayed", "true");
    answer_when_ended(waiters_, std::move(pending),
                      [this, who, job = request.job(), id = asked->checkpoint_id] {
                        return changes_.checkpoint(who, job, id);
                      });
  };
  return rpc::run_async<v1::CreateCheckpointRequest, v1::Checkpoint>(room_, ctx, in, out, starter,
                                                                     milliseconds(600'000));
}

Unary* FineTuningRpc::EstimateFineTuningJob(Context* ctx,
                                            const v1::EstimateFineTuningJobRequest* in,
                                            v1::Estimate* out) {
  if (in->mode() != v1::Estimate::METHOD_PROBE) {
    return rpc::run(room_, ctx, in, out,
                    [=, this](Call& call) { return jobs_.estimate(call.principal(), *in); });
  }
  using Pending = rpc::Pending<v1::Estimate>;
  const auto starter = [this](std::shared_ptr<Pending> pending,
                              const v1::EstimateFineTuningJobRequest& request) {
    const auto who = pending->call().principal();
    auto begun = probes_.begin(who, request);
    if (!begun.ok()) return pending->answer(begun.status());
    const auto probe = std::make_shared<const MemoryProbes::Begun>(std::move(begun).value());
    answer_when_ended(
        waiters_, std::move(pending), [this, who, probe] { return probes_.look(who, *probe); },
        [this, who, probe] { return probes_.abandon(who, *probe); });
  };
  return rpc::run_async<v1::EstimateFineTuningJobRequest, v1::Estimate>(
      room_, ctx, in, out, starter, milliseconds(300'000));
}

Unary* FineTuningRpc::PreviewHeadSelection(Context* ctx, const v1::PreviewHeadSelectionRequest* in,
                                           v1::HeadSelectionReport* out) {
  using Pending = rpc::Pending<v1::HeadSelectionReport>;
  const auto starter = [this](std::shared_ptr<Pending> pending,
                              const v1::PreviewHeadSelectionRequest& request) {
    const auto who = pending->call().principal();
    const auto begun = previews_.begin(who, request);
    if (!begun.ok()) return pending->answer(begun.status());
    answer_when_ended(
        waiters_, std::move(pending),
        [this, who, id = *begun, picture = request.with_picture()] {
          return previews_.look(who, id, picture);
        },
        [this, who, id = *begun] { return previews_.abandon(who, id); });
  };
  return rpc::run_async<v1::PreviewHeadSelectionRequest, v1::HeadSelectionReport>(
      room_, ctx, in, out, starter, milliseconds(600'000));
}

Unary* FineTuningRpc::ListFineTuningEvents(Context* ctx, const v1::ListFineTuningEventsRequest* in,
                                           v1::ListFineTuningEventsResponse* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](Call& call) { return jobs_.events(call.principal(), *in); });
}

Unary* FineTuningRpc::ListFineTuningCheckpoints(Context* ctx,
                                                const v1::ListFineTuningCheckpointsRequest* in,
                                                v1::ListFineTuningCheckpointsResponse* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](Call& call) { return jobs_.checkpoints(call.principal(), *in); });
}

grpc::ServerWriteReactor<v1::WatchFineTuningJobResponse>* FineTuningRpc::WatchFineTuningJob(
    Context* ctx, const v1::WatchFineTuningJobRequest* in) {
  return watch_job<v1::WatchFineTuningJobResponse>(
      room_, watches_, ctx, in, {"ftjob-", "job", auth::Scope::kJobsRead},
      [](const store::JobRecord& record) { return job_view(record); });
}

// ---- FileService ----

grpc::ServerReadReactor<v1::UploadFileRequest>* FileRpc::UploadFile(Context* ctx, v1::File* out) {
  using Upload = rpc::Upload<v1::UploadFileRequest>;
  return rpc::upload<v1::UploadFileRequest>(
      room_, ctx, out, [this](Call& call, Upload& upload) -> base::Result<v1::File> {
        DEX_ASSIGN_OR_RETURN(const auto first, upload.next());
        if (!first || !first->has_header()) {
          return base::invalid_field("header", "must be the first message of an upload");
        }
        return marked(call, files_.upload(call.principal(), first->header(),
                                          [&upload] { return next_chunk(upload); }));
      });
}

Unary* FileRpc::GetFile(Context* ctx, const v1::GetFileRequest* in, v1::File* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](Call& call) { return files_.get(call.principal(), *in); });
}

Unary* FileRpc::ListFiles(Context* ctx, const v1::ListFilesRequest* in,
                          v1::ListFilesResponse* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](Call& call) { return files_.list(call.principal(), *in); });
}

Unary* FileRpc::ListFindings(Context* ctx, const v1::ListFindingsRequest* in,
                             v1::ListFindingsResponse* out) {
  return rpc::run(room_, ctx, in, out,
                  [=, this](Call& call) { return files_.findings(call.principal(), *in); });
}

Unary* FileRpc::DeleteFile(Context* ctx, const v1::DeleteFileRequest* in,
                           v1::DeleteFileResponse* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call& call) {
    return marked(call, files_.remove(call.principal(), *in));
  });
}

grpc::ServerWriteReactor<v1::DownloadFileResponse>* FileRpc::DownloadFile(
    Context* ctx, const v1::DownloadFileRequest* in) {
  using Message = v1::DownloadFileResponse;
  return rpc::stream<Message>(
      room_, ctx, in,
      [this](std::shared_ptr<rpc::ServerStream<Message>> stream,
             const v1::DownloadFileRequest& request) {
        stream->finish(files_.download(stream->call().principal(), request, chunk_sink(*stream)));
      },
      download_options<Message>());
}

grpc::ServerWriteReactor<v1::ValidateFileResponse>* FileRpc::ValidateFile(
    Context* ctx, const v1::ValidateFileRequest* in) {
  using Message = v1::ValidateFileResponse;
  rpc::StreamOptions<Message> options;
  options.waits_for_client = true;
  return rpc::stream<Message>(
      room_, ctx, in,
      [this](std::shared_ptr<rpc::ServerStream<Message>> stream,
             const v1::ValidateFileRequest& request) {
        stream->finish(checks_.validate(
            stream->call().principal(), request,
            [&stream](Message message) { return stream->write(std::move(message)); }));
      },
      std::move(options));
}

Unary* FileRpc::PreviewFile(Context* ctx, const v1::PreviewFileRequest* in,
                            v1::PreviewFileResponse* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call& call) {
    return checks_.preview(call.principal(), *in, call.stop());
  });
}

// ---- ModelService ----

Unary* ModelRpc::ListModels(Context* ctx, const v1::ListModelsRequest* in,
                            v1::ListModelsResponse* out) {
  return rpc::run(room_, ctx, in, out, [this](Call&) { return models_.list(); });
}

Unary* ModelRpc::GetModel(Context* ctx, const v1::GetModelRequest* in, v1::Model* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call&) { return models_.get(*in); });
}

Unary* ModelRpc::ListPresets(Context* ctx, const v1::ListPresetsRequest* in,
                             v1::ListPresetsResponse* out) {
  return rpc::run(room_, ctx, in, out, [](Call&) { return Models::presets(); });
}

Unary* ModelRpc::GetPreset(Context* ctx, const v1::GetPresetRequest* in, v1::Preset* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call&) { return models_.preset(*in); });
}

Unary* ModelRpc::GetServerCapabilities(Context* ctx, const v1::GetServerCapabilitiesRequest* in,
                                       v1::ServerCapabilities* out) {
  return rpc::run(room_, ctx, in, out, [this](Call&) { return models_.capabilities(); });
}

Unary* ModelRpc::GetModelLimits(Context* ctx, const v1::GetModelLimitsRequest* in,
                                v1::ModelLimits* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call&) { return models_.limits(*in); });
}

// ---- RouteService ----

namespace {

class RouteClient final : public Routes::Gateway {
 public:
  using Stream = rpc::ServerStream<iv1::RouteSnapshot>;
  explicit RouteClient(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
  bool push(iv1::RouteSnapshot snapshot) override { return stream_->push(std::move(snapshot)); }
  [[nodiscard]] bool gone() const override { return stream_->call().stop().stop_requested(); }

 private:
  std::shared_ptr<Stream> stream_;
};

}  // namespace

grpc::ServerWriteReactor<iv1::RouteSnapshot>* RouteRpc::WatchRoutes(
    Context* ctx, const iv1::WatchRoutesRequest* in) {
  return rpc::stream<iv1::RouteSnapshot>(
      room_, ctx, in,
      [this](std::shared_ptr<rpc::ServerStream<iv1::RouteSnapshot>> stream,
             const iv1::WatchRoutesRequest&) {
        const auto status = routes_.watch(std::make_shared<RouteClient>(stream));
        if (!status.ok()) stream->finish(status);
      });
}

Unary* RouteRpc::ReportUse(Context* ctx, const iv1::ReportUseRequest* in,
                           iv1::ReportUseResponse* out) {
  return rpc::run(room_, ctx, in, out, [=, this](Call&) -> base::Result<iv1::ReportUseResponse> {
    DEX_RETURN_IF_ERROR(keys_.report(*in));
    DEX_RETURN_IF_ERROR(usage_.report(*in));
    return iv1::ReportUseResponse();
  });
}

// ---- WorkerService ----

Unary* WorkerRpc::Register(Context* ctx, const iv1::RegisterRequest* in,
                           iv1::RegisterResponse* out) {
  return rpc::run(
      room_, ctx, in, out, [=, this](Call&) { return workers_.enlist(*in); }, milliseconds(5000));
}

constexpr int64_t kLongestWait_ms = 20'000;

Unary* WorkerRpc::Claim(Context* ctx, const iv1::ClaimRequest* in, iv1::ClaimResponse* out) {
  using Pending = rpc::Pending<iv1::ClaimResponse>;
  const auto starter = [this](std::shared_ptr<Pending> pending, const iv1::ClaimRequest& request) {
    auto answer = workers_.claim(request);
    const auto wait = milliseconds(std::clamp<int64_t>(request.wait_ms(), 0, kLongestWait_ms));
    const bool none = answer.ok() && answer->has_none();
    if (!none || wait.count() == 0) return pending->answer(std::move(answer));
    const auto until = std::chrono::steady_clock::now() + wait;
    waiters_.add([this, pending, request, until] {
      if (!pending->alive()) return true;
      auto answer = workers_.claim(request);
      const bool nothing =
          answer.ok() ? answer->has_none() : answer.status().code() == base::Code::kUnavailable;
      if (nothing && std::chrono::steady_clock::now() < until) return false;
      pending->answer(std::move(answer));
      return true;
    });
  };
  return rpc::run_async<iv1::ClaimRequest, iv1::ClaimResponse>(room_, ctx, in, out, starter,
                                                               milliseconds(25'000));
}

Unary* WorkerRpc::Heartbeat(Context* ctx, const iv1::HeartbeatRequest* in,
                            iv1::HeartbeatResponse* out) {
  return rpc::run(
      room_, ctx, in, out, [=, this](Call&) { return workers_.heartbeat(*in); },
      milliseconds(5000));
}

Unary* WorkerRpc::Finish(Context* ctx, const iv1::FinishRequest* in, iv1::FinishResponse* out) {
  return rpc::run(
      room_, ctx, in, out, [=, this](Call&) { return workers_.finish(*in); }, milliseconds(10'000));
}

Unary* WorkerRpc::Drain(Context* ctx, const iv1::DrainRequest* in, iv1::DrainResponse* out) {
  return rpc::run(
      room_, ctx, in, out, [=, this](Call&) { return workers_.drain(*in); }, milliseconds(5000));
}

}  // namespace dex::server
