#include "client/cpp/client.h"

#include <algorithm>
#include <fstream>

#include "client/cpp/adapter_archive.h"
#include "client/cpp/call_context.h"
#include "services/base/clock.h"
#include "services/base/files.h"
#include "services/base/ids.h"
#include "services/base/random.h"
#include "services/rpc/channel.h"
#include "services/rpc/status.h"

namespace dex::client {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstDelay{200};
constexpr milliseconds kLongestDelay{2000};
constexpr size_t kChunkBytes = 256 << 10;

Status stopped() {
  return {base::Code::kCancelled, "CLIENT_CANCELLED", "stopped on request"};
}

// A server that can't be reached is named, with the way out: that is the commonest mistake.
Status readable(const grpc::Status& status, const Client::Options& options) {
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && !rpc::has_error_info(status)) {
    const std::string origin =
        options.server_origin.empty() ? "" : " (named by " + options.server_origin + ")";
    return {base::Code::kUnavailable, "",
            "no answer from " + options.server + origin +
                "; is dexd running there? Name another with --server or DEX_SERVER. Cause: " +
                status.error_message()};
  }
  return rpc::from_grpc(status);
}

// A tar that comes in chunks, unpacked into `folder`.
template <typename Part>
Status unpack_download(grpc::ClientReader<Part>& reader, CallContext& context,
                       const std::filesystem::path& folder, const Client::Options& options) {
  Part part;
  bool open = true;
  const Status unpacked = unpack_adapter(
      [&]() -> std::optional<std::string_view> {
        open = open && reader.Read(&part);
        if (!open) return std::nullopt;
        return part.chunk();
      },
      folder);
  if (open) context.get().TryCancel();  // a stream that has ended keeps the server's word
  const grpc::Status status = reader.Finish();
  // The server's own word says more than a tar that ended early.
  if (!status.ok() && status.error_code() != grpc::StatusCode::CANCELLED) {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    return readable(status, options);
  }
  return unpacked;
}

}  // namespace

std::string new_request_id() {
  static base::SystemClock clock;
  static base::SystemRandom random;
  static base::UlidGenerator ids(clock, random);
  return ids.next();
}

Client::Client(Options options)
    : options_(std::move(options)),
      channel_(rpc::channel(options_.server)),
      jobs_(v1::FineTuningService::NewStub(channel_)),
      evaluations_(v1::EvaluationService::NewStub(channel_)),
      files_(v1::FileService::NewStub(channel_)),
      adapters_(v1::AdapterService::NewStub(channel_)),
      inference_(v1::InferenceService::NewStub(channel_)),
      models_(v1::ModelService::NewStub(channel_)),
      admin_(v1::AdminService::NewStub(channel_)) {}

std::string Client::request_id() const {
  return options_.request_id.empty() ? new_request_id() : options_.request_id;
}

template <typename Stub, typename Request, typename Reply>
Result<Reply> Client::call(Stub& stub,
                           grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                        Reply*),
                           const Request& request, milliseconds timeout) {
  const auto start = std::chrono::steady_clock::now();
  milliseconds delay = kFirstDelay;
  while (true) {
    const auto now = std::chrono::steady_clock::now();
    const auto left = std::chrono::duration_cast<milliseconds>(start + timeout - now);
    CallContext context(options_.stop, std::max(left, milliseconds(1)), options_.api_key);
    Reply reply;
    const grpc::Status status = (stub.*method)(&context.get(), request, &reply);
    if (status.ok()) return reply;
    if (options_.stop.stop_requested()) return stopped();
    // A long generation may take its time; finding nobody to ask may not.
    const auto patience = std::min(timeout, options_.timeout);
    const bool again = status.error_code() == grpc::StatusCode::UNAVAILABLE &&
                       std::chrono::steady_clock::now() + delay < start + patience;
    if (!again) return readable(status, options_);
    if (!wait_unless_stopped(options_.stop, delay)) return stopped();
    delay = std::min(delay * 2, kLongestDelay);
  }
}

Result<v1::FineTuningJob> Client::create_job(const v1::CreateFineTuningJobRequest& request) {
  v1::CreateFineTuningJobRequest once = request;
  if (once.request_id().empty()) once.set_request_id(request_id());
  return call(*jobs_, &v1::FineTuningService::Stub::CreateFineTuningJob, once, options_.timeout);
}

Result<v1::BatchCreateFineTuningJobsResponse> Client::create_jobs(
    const v1::BatchCreateFineTuningJobsRequest& request) {
  v1::BatchCreateFineTuningJobsRequest once = request;
  if (once.request_id().empty()) once.set_request_id(request_id());
  return call(*jobs_, &v1::FineTuningService::Stub::BatchCreateFineTuningJobs, once,
              options_.timeout);
}

Result<v1::FineTuningJob> Client::get_job(const std::string& id, bool with_head_selection) {
  v1::GetFineTuningJobRequest request;
  request.set_id(id);
  request.set_with_head_selection(with_head_selection);
  return call(*jobs_, &v1::FineTuningService::Stub::GetFineTuningJob, request, options_.timeout);
}

Result<v1::ListFineTuningJobsResponse> Client::list_jobs(
    const v1::ListFineTuningJobsRequest& request) {
  return call(*jobs_, &v1::FineTuningService::Stub::ListFineTuningJobs, request, options_.timeout);
}

Result<v1::FineTuningJob> Client::cancel_job(const std::string& id) {
  v1::CancelFineTuningJobRequest request;
  request.set_id(id);
  request.set_request_id(request_id());
  return call(*jobs_, &v1::FineTuningService::Stub::CancelFineTuningJob, request, options_.timeout);
}

Result<v1::FineTuningJob> Client::pause_job(const std::string& id) {
  v1::PauseFineTuningJobRequest request;
  request.set_id(id);
  request.set_request_id(request_id());
  return call(*jobs_, &v1::FineTuningService::Stub::PauseFineTuningJob, request, options_.timeout);
}

Result<v1::FineTuningJob> Client::resume_job(const std::string& id) {
  v1::ResumeFineTuningJobRequest request;
  request.set_id(id);
  request.set_request_id(request_id());
  return call(*jobs_, &v1::FineTuningService::Stub::ResumeFineTuningJob, request, options_.timeout);
}

Result<v1::FineTuningJob> Client::update_job(const v1::UpdateFineTuningJobRequest& request) {
  v1::UpdateFineTuningJobRequest once = request;
  if (once.request_id().empty()) once.set_request_id(request_id());
  return call(*jobs_, &v1::FineTuningService::Stub::UpdateFineTuningJob, once, options_.timeout);
}

Result<v1::DeleteFineTuningJobResponse> Client::delete_job(const std::string& id,
                                                           bool with_adapter) {
  v1::DeleteFineTuningJobRequest request;
  request.set_id(id);
  request.set_delete_adapter(with_adapter);
  request.set_request_id(request_id());
  return call(*jobs_, &v1::FineTuningService::Stub::DeleteFineTuningJob, request, options_.timeout);
}

Result<v1::FineTuningJob> Client::redrive_job(const std::string& id, double deadline_seconds) {
  v1::RedriveFineTuningJobRequest request;
  request.set_id(id);
  if (deadline_seconds > 0) request.set_deadline_seconds(deadline_seconds);
  request.set_request_id(request_id());
  return call(*admin_, &v1::AdminService::Stub::RedriveFineTuningJob, request, options_.timeout);
}

Result<v1::Checkpoint> Client::create_checkpoint(const std::string& job) {
  v1::CreateCheckpointRequest request;
  request.set_job(job);
  request.set_request_id(request_id());
  return call(*jobs_, &v1::FineTuningService::Stub::CreateCheckpoint, request, options_.generation);
}

Result<v1::ListFineTuningCheckpointsResponse> Client::list_checkpoints(
    const v1::ListFineTuningCheckpointsRequest& request) {
  return call(*jobs_, &v1::FineTuningService::Stub::ListFineTuningCheckpoints, request,
              options_.timeout);
}

Result<v1::Estimate> Client::estimate_job(const v1::FineTuningJobSpec& spec, bool probe) {
  v1::EstimateFineTuningJobRequest request;
  *request.mutable_spec() = spec;
  if (probe) request.set_mode(v1::Estimate::METHOD_PROBE);
  return call(*jobs_, &v1::FineTuningService::Stub::EstimateFineTuningJob, request,
              probe ? options_.probe : options_.timeout);
}

Result<v1::HeadSelectionReport> Client::preview_head_selection(
    const v1::PreviewHeadSelectionRequest& request) {
  return call(*jobs_, &v1::FineTuningService::Stub::PreviewHeadSelection, request,
              options_.generation);
}

Result<v1::ListFineTuningEventsResponse> Client::list_events(
    const v1::ListFineTuningEventsRequest& request) {
  return call(*jobs_, &v1::FineTuningService::Stub::ListFineTuningEvents, request,
              options_.timeout);
}

Result<v1::Evaluation> Client::create_evaluation(const v1::CreateEvaluationRequest& request) {
  v1::CreateEvaluationRequest once = request;
  if (once.request_id().empty()) once.set_request_id(request_id());
  return call(*evaluations_, &v1::EvaluationService::Stub::CreateEvaluation, once,
              options_.timeout);
}

Result<v1::Evaluation> Client::get_evaluation(const std::string& id, bool with_pictures) {
  v1::GetEvaluationRequest request;
  request.set_id(id);
  request.set_with_pictures(with_pictures);
  return call(*evaluations_, &v1::EvaluationService::Stub::GetEvaluation, request,
              options_.timeout);
}

Status Client::download_evaluation(const std::string& id, const std::filesystem::path& folder) {
  v1::DownloadEvaluationRequest request;
  request.set_id(id);
  CallContext context(options_.stop, options_.generation, options_.api_key);
  const auto reader = evaluations_->DownloadEvaluation(&context.get(), request);
  return unpack_download(*reader, context, folder, options_);
}

Result<v1::ListEvaluationsResponse> Client::list_evaluations(
    const v1::ListEvaluationsRequest& request) {
  return call(*evaluations_, &v1::EvaluationService::Stub::ListEvaluations, request,
              options_.timeout);
}

Result<v1::ListEvaluationSamplesResponse> Client::list_evaluation_samples(
    const v1::ListEvaluationSamplesRequest& request) {
  return call(*evaluations_, &v1::EvaluationService::Stub::ListEvaluationSamples, request,
              options_.timeout);
}

Result<v1::CompareEvaluationsResponse> Client::compare_evaluations(
    const v1::CompareEvaluationsRequest& request) {
  return call(*evaluations_, &v1::EvaluationService::Stub::CompareEvaluations, request,
              options_.timeout);
}

Result<v1::Evaluation> Client::cancel_evaluation(const std::string& id) {
  v1::CancelEvaluationRequest request;
  request.set_id(id);
  request.set_request_id(request_id());
  return call(*evaluations_, &v1::EvaluationService::Stub::CancelEvaluation, request,
              options_.timeout);
}

Result<v1::DeleteEvaluationResponse> Client::delete_evaluation(const std::string& id) {
  v1::DeleteEvaluationRequest request;
  request.set_id(id);
  request.set_request_id(request_id());
  return call(*evaluations_, &v1::EvaluationService::Stub::DeleteEvaluation, request,
              options_.timeout);
}

Result<v1::File> Client::upload_file(const std::filesystem::path& path,
                                     v1::UploadFileRequest::Header header,
                                     const std::function<void(int64_t, int64_t)>& progress) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return base::not_found("RESOURCE_NOT_FOUND", "there is no regular file " + path.string());
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) return base::invalid_argument("INVALID_FIELD", path.string() + " can't be read");
  const auto total = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (header.filename().empty()) header.set_filename(path.filename().string());
  if (header.request_id().empty()) header.set_request_id(request_id());

  CallContext context(options_.stop, options_.generation, options_.api_key);
  context.get().set_wait_for_ready(false);
  v1::File file;
  const auto writer = files_->UploadFile(&context.get(), &file);
  v1::UploadFileRequest part;
  *part.mutable_header() = std::move(header);
  bool open = writer->Write(part);
  int64_t sent = 0;
  std::string buffer(kChunkBytes, '\0');
  while (open && in) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    if (in.gcount() == 0) break;
    part.set_chunk(buffer.substr(0, static_cast<size_t>(in.gcount())));
    open = writer->Write(part);  // false: the server has answered already, Finish says what
    sent += in.gcount();
    if (progress) progress(sent, total);
  }
  if (open) writer->WritesDone();
  const grpc::Status status = writer->Finish();
  if (status.ok()) return file;
  return options_.stop.stop_requested() ? stopped() : readable(status, options_);
}

Result<v1::File> Client::get_file(const std::string& id) {
  v1::GetFileRequest request;
  request.set_id(id);
  return call(*files_, &v1::FileService::Stub::GetFile, request, options_.timeout);
}

Result<v1::ListFilesResponse> Client::list_files(const v1::ListFilesRequest& request) {
  return call(*files_, &v1::FileService::Stub::ListFiles, request, options_.timeout);
}

Result<v1::ListFindingsResponse> Client::list_findings(const v1::ListFindingsRequest& request) {
  return call(*files_, &v1::FileService::Stub::ListFindings, request, options_.timeout);
}

Result<v1::DeleteFileResponse> Client::delete_file(const std::string& id) {
  v1::DeleteFileRequest request;
  request.set_id(id);
  request.set_request_id(request_id());
  return call(*files_, &v1::FileService::Stub::DeleteFile, request, options_.timeout);
}

Status Client::validate_file(const v1::ValidateFileRequest& request,
                             const ValidateCallback& callback) {
  CallContext context(options_.stop, options_.generation, options_.api_key);
  const auto reader = files_->ValidateFile(&context.get(), request);
  v1::ValidateFileResponse part;
  bool wanted = true;
  while (wanted && reader->Read(&part)) wanted = callback(part);
  if (!wanted) context.get().TryCancel();
  const grpc::Status status = reader->Finish();
  if (!wanted || status.ok()) return {};
  return options_.stop.stop_requested() ? stopped() : readable(status, options_);
}

Result<v1::PreviewFileResponse> Client::preview_file(const v1::PreviewFileRequest& request) {
  return call(*files_, &v1::FileService::Stub::PreviewFile, request, options_.timeout);
}

Status Client::download_file(const std::string& id, const std::filesystem::path& to) {
  DEX_ASSIGN_OR_RETURN(auto out, base::FileWriter::create(to));
  v1::DownloadFileRequest request;
  request.set_id(id);
  CallContext context(options_.stop, options_.generation, options_.api_key);
  const auto reader = files_->DownloadFile(&context.get(), request);
  v1::DownloadFileResponse part;
  Status written;
  while (written.ok() && reader->Read(&part)) written = out.append(part.chunk());
  if (!written.ok()) context.get().TryCancel();
  const grpc::Status status = reader->Finish();
  DEX_RETURN_IF_ERROR(written);
  if (!status.ok()) return readable(status, options_);
  return out.close();
}

Result<v1::ListAdaptersResponse> Client::list_adapters(const v1::ListAdaptersRequest& request) {
  return call(*adapters_, &v1::AdapterService::Stub::ListAdapters, request, options_.timeout);
}

Result<v1::Adapter> Client::get_adapter(const std::string& id) {
  v1::GetAdapterRequest request;
  request.set_id(id);
  return call(*adapters_, &v1::AdapterService::Stub::GetAdapter, request, options_.timeout);
}

Result<v1::Adapter> Client::load_adapter(const std::string& id, double wait_seconds, bool pin,
                                         bool allow_no_effect) {
  v1::LoadAdapterRequest request;
  request.set_pin(pin);
  request.set_allow_no_effect(allow_no_effect);
  request.set_id(id);
  request.set_wait_seconds(wait_seconds);
  request.set_request_id(request_id());
  const milliseconds patience{static_cast<int64_t>(wait_seconds * 1000)};
  DEX_ASSIGN_OR_RETURN(auto reply, call(*adapters_, &v1::AdapterService::Stub::LoadAdapter, request,
                                        patience + options_.timeout));
  return std::move(*reply.mutable_adapter());
}

Result<v1::Adapter> Client::pin_adapter(const std::string& id, bool pinned) {
  v1::PinAdapterRequest request;
  request.set_id(id);
  request.set_pinned(pinned);
  request.set_request_id(request_id());
  return call(*adapters_, &v1::AdapterService::Stub::PinAdapter, request, options_.timeout);
}

Result<v1::Adapter> Client::unload_adapter(const std::string& id) {
  v1::UnloadAdapterRequest request;
  request.set_id(id);
  request.set_request_id(request_id());
  return call(*adapters_, &v1::AdapterService::Stub::UnloadAdapter, request, options_.timeout);
}

Result<v1::DeleteAdapterResponse> Client::delete_adapter(const std::string& id) {
  v1::DeleteAdapterRequest request;
  request.set_id(id);
  request.set_request_id(request_id());
  return call(*adapters_, &v1::AdapterService::Stub::DeleteAdapter, request, options_.timeout);
}

Result<v1::AdapterAlias> Client::set_adapter_alias(v1::SetAdapterAliasRequest request) {
  constexpr double kUsualWait_seconds = 60;
  request.set_request_id(request_id());
  const double wait = request.has_wait_seconds() ? request.wait_seconds() : kUsualWait_seconds;
  const milliseconds patience{static_cast<int64_t>(wait * 1000)};
  return call(*adapters_, &v1::AdapterService::Stub::SetAdapterAlias, request,
              patience + options_.timeout);
}

Result<v1::AdapterAlias> Client::delete_adapter_alias(const std::string& alias) {
  v1::DeleteAdapterAliasRequest request;
  request.set_alias(alias);
  request.set_request_id(request_id());
  return call(*adapters_, &v1::AdapterService::Stub::DeleteAdapterAlias, request, options_.timeout);
}

Result<v1::ListAdapterAliasesResponse> Client::list_adapter_aliases(
    const v1::ListAdapterAliasesRequest& request) {
  return call(*adapters_, &v1::AdapterService::Stub::ListAdapterAliases, request, options_.timeout);
}

Status Client::download_adapter(const std::string& id, const std::filesystem::path& folder) {
  v1::DownloadAdapterRequest request;
  request.set_id(id);
  CallContext context(options_.stop, options_.generation, options_.api_key);
  const auto reader = adapters_->DownloadAdapter(&context.get(), request);
  return unpack_download(*reader, context, folder, options_);
}

Status Client::download_export(const std::string& id, const std::filesystem::path& folder) {
  v1::DownloadAdapterRequest request;
  request.set_export_(id);
  CallContext context(options_.stop, options_.generation, options_.api_key);
  const auto reader = adapters_->DownloadAdapter(&context.get(), request);
  return unpack_download(*reader, context, folder, options_);
}

Result<v1::Export> Client::export_adapter(const v1::ExportAdapterRequest& request) {
  v1::ExportAdapterRequest once = request;
  if (once.request_id().empty()) once.set_request_id(request_id());
  return call(*adapters_, &v1::AdapterService::Stub::ExportAdapter, once, options_.generation);
}

Result<v1::Adapter> Client::import_adapter(const std::filesystem::path& folder,
                                           v1::ImportAdapterRequest::Header header) {
  if (header.request_id().empty()) header.set_request_id(request_id());
  CallContext context(options_.stop, options_.generation, options_.api_key);
  v1::Adapter adapter;
  const auto writer = adapters_->ImportAdapter(&context.get(), &adapter);
  v1::ImportAdapterRequest part;
  *part.mutable_header() = std::move(header);
  bool open = writer->Write(part);
  Status packed;
  if (open) {
    packed = pack_adapter(folder, [&](std::string_view piece) {
      if (!open) return false;
      part.set_chunk(std::string(piece));
      open = writer->Write(part);  // false: the server has answered already, Finish says what
      return open;
    });
  }
  const bool own_fault = !packed.ok() && open;
  if (own_fault) context.get().TryCancel();
  if (open && !own_fault) writer->WritesDone();
  const grpc::Status status = writer->Finish();
  if (own_fault) return packed;
  if (status.ok()) return adapter;
  return options_.stop.stop_requested() ? stopped() : readable(status, options_);
}

Result<v1::GenerateResponse> Client::generate(const v1::GenerateRequest& request) {
  return call(*inference_, &v1::InferenceService::Stub::Generate, request, options_.generation);
}

Status Client::generate_stream(const v1::GenerateRequest& request, const StreamCallback& callback) {
  CallContext context(options_.stop, options_.generation, options_.api_key);
  const auto reader = inference_->GenerateStream(&context.get(), request);
  v1::GenerateStreamResponse event;
  bool wanted = true;
  while (wanted && reader->Read(&event)) wanted = callback(event);
  if (!wanted) context.get().TryCancel();
  const grpc::Status status = reader->Finish();
  if (status.ok() || !wanted) return {};
  return options_.stop.stop_requested() ? stopped() : readable(status, options_);
}

Result<v1::TokenizeResponse> Client::tokenize(const v1::TokenizeRequest& request) {
  return call(*inference_, &v1::InferenceService::Stub::Tokenize, request, options_.timeout);
}

Result<v1::DetokenizeResponse> Client::detokenize(const v1::DetokenizeRequest& request) {
  return call(*inference_, &v1::InferenceService::Stub::Detokenize, request, options_.timeout);
}

Result<v1::TokenizerInfo> Client::tokenizer_info(const v1::GetTokenizerInfoRequest& request) {
  return call(*inference_, &v1::InferenceService::Stub::GetTokenizerInfo, request,
              options_.timeout);
}

Result<v1::ListModelsResponse> Client::list_models() {
  return call(*models_, &v1::ModelService::Stub::ListModels, v1::ListModelsRequest(),
              options_.timeout);
}

Result<v1::Model> Client::get_model(const std::string& name) {
  v1::GetModelRequest request;
  request.set_name(name);
  return call(*models_, &v1::ModelService::Stub::GetModel, request, options_.timeout);
}

Result<v1::ListPresetsResponse> Client::list_presets() {
  return call(*models_, &v1::ModelService::Stub::ListPresets, v1::ListPresetsRequest(),
              options_.timeout);
}

Result<v1::Preset> Client::get_preset(const std::string& name, const std::string& model) {
  v1::GetPresetRequest request;
  request.set_name(name);
  request.set_model(model);
  return call(*models_, &v1::ModelService::Stub::GetPreset, request, options_.timeout);
}

Result<v1::ModelLimits> Client::model_limits(const std::string& model, const std::string& method) {
  v1::GetModelLimitsRequest request;
  request.set_model(model);
  request.set_method(method);
  return call(*models_, &v1::ModelService::Stub::GetModelLimits, request, options_.timeout);
}

Result<v1::Health> Client::health() {
  return call(*admin_, &v1::AdminService::Stub::GetHealth, v1::GetHealthRequest(),
              options_.timeout);
}

Result<v1::Quota> Client::quota(const std::string& tenant) {
  v1::GetQuotaRequest request;
  request.set_tenant(tenant);
  return call(*admin_, &v1::AdminService::Stub::GetQuota, request, options_.timeout);
}

Result<v1::Quota> Client::set_quota(const v1::SetQuotaRequest& request) {
  v1::SetQuotaRequest once = request;
  if (once.request_id().empty()) once.set_request_id(request_id());
  return call(*admin_, &v1::AdminService::Stub::SetQuota, once, options_.timeout);
}

Result<v1::ListWorkersResponse> Client::list_workers() {
  v1::ListWorkersRequest request;
  request.set_page_size(1000);
  v1::ListWorkersResponse all;
  while (true) {
    DEX_ASSIGN_OR_RETURN(const auto page, call(*admin_, &v1::AdminService::Stub::ListWorkers,
                                               request, options_.timeout));
    all.MergeFrom(page);
    all.clear_next_page_token();
    if (page.next_page_token().empty()) return all;
    request.set_page_token(page.next_page_token());
  }
}

Result<v1::Worker> Client::update_worker(const std::string& id, bool draining) {
  v1::UpdateWorkerRequest request;
  request.set_id(id);
  request.set_draining(draining);
  request.set_request_id(request_id());
  return call(*admin_, &v1::AdminService::Stub::UpdateWorker, request, options_.timeout);
}

Result<v1::Queue> Client::queue(const std::string& pool, int count) {
  v1::GetQueueRequest request;
  request.set_pool(pool);
  request.set_count(count);
  return call(*admin_, &v1::AdminService::Stub::GetQueue, request, options_.timeout);
}

Result<v1::Caller> Client::who_am_i() {
  return call(*admin_, &v1::AdminService::Stub::WhoAmI, v1::WhoAmIRequest(), options_.timeout);
}

Result<v1::ApiKey> Client::create_api_key(const v1::CreateApiKeyRequest& request) {
  v1::CreateApiKeyRequest once = request;
  if (once.request_id().empty()) once.set_request_id(request_id());
  return call(*admin_, &v1::AdminService::Stub::CreateApiKey, once, options_.timeout);
}

Result<v1::ListApiKeysResponse> Client::list_api_keys(const std::string& tenant) {
  v1::ListApiKeysRequest request;
  request.set_tenant(tenant);
  request.set_page_size(1000);
  v1::ListApiKeysResponse all;
  while (true) {
    DEX_ASSIGN_OR_RETURN(const auto page, call(*admin_, &v1::AdminService::Stub::ListApiKeys,
                                               request, options_.timeout));
    all.MergeFrom(page);
    all.clear_next_page_token();
    if (page.next_page_token().empty()) return all;
    request.set_page_token(page.next_page_token());
  }
}

Result<v1::ApiKey> Client::revoke_api_key(const std::string& id) {
  v1::RevokeApiKeyRequest request;
  request.set_id(id);
  request.set_request_id(request_id());
  return call(*admin_, &v1::AdminService::Stub::RevokeApiKey, request, options_.timeout);
}

Result<v1::GetUsageResponse> Client::usage(const v1::GetUsageRequest& request) {
  return call(*admin_, &v1::AdminService::Stub::GetUsage, request, options_.timeout);
}

Result<v1::ServerCapabilities> Client::capabilities() {
  return call(*models_, &v1::ModelService::Stub::GetServerCapabilities,
              v1::GetServerCapabilitiesRequest(), options_.timeout);
}

}  // namespace dex::client
