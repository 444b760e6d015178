#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "dex/v1/adapters.grpc.pb.h"
#include "dex/v1/admin.grpc.pb.h"
#include "dex/v1/evaluation.grpc.pb.h"
#include "dex/v1/files.grpc.pb.h"
#include "dex/v1/finetuning.grpc.pb.h"
#include "dex/v1/inference.grpc.pb.h"
#include "dex/v1/models.grpc.pb.h"
#include "services/base/status.h"

namespace dex::client {

using base::Result;
using base::Status;

// The platform, seen from one program: one channel, every RPC as a blocking call with a deadline.
// Calls that found nobody (UNAVAILABLE) are repeated within their time; that is safe, since every
// call that changes something carries a request_id. Thread-safe. No exceptions.
class Client {
 public:
  struct Options {
    std::string server = "localhost:50051";  // host:port, or unix:/path
    std::string
        server_origin;    // who named it ("DEX_SERVER", a file), for the error when it is away
    std::string api_key;  // sent with each call; empty: none
    std::chrono::milliseconds timeout{60'000};  // of one call, repeats included
    // Of one generation, preview, checkpoint, download, import or export.
    std::chrono::milliseconds generation{600'000};
    std::chrono::milliseconds probe{300'000};  // of one estimate that a worker measures
    std::stop_token stop;                      // ends waits and streams early with CANCELLED
    // Of every call that changes something and brings none itself, 1–64 characters; empty: each has
    // a new one. For programs that make one change and may have to make it again.
    std::string request_id;
  };
  explicit Client(Options options);

  Result<v1::FineTuningJob> create_job(const v1::CreateFineTuningJobRequest& request);
  // Up to 64 jobs, all or none.
  Result<v1::BatchCreateFineTuningJobsResponse> create_jobs(
      const v1::BatchCreateFineTuningJobsRequest& request);
  Result<v1::FineTuningJob> get_job(const std::string& id, bool with_head_selection = false);
  Result<v1::ListFineTuningJobsResponse> list_jobs(const v1::ListFineTuningJobsRequest& request);
  Result<v1::FineTuningJob> cancel_job(const std::string& id);
  Result<v1::FineTuningJob> pause_job(const std::string& id);
  Result<v1::FineTuningJob> resume_job(const std::string& id);
  Result<v1::FineTuningJob> update_job(const v1::UpdateFineTuningJobRequest& request);
  Result<v1::DeleteFineTuningJobResponse> delete_job(const std::string& id, bool with_adapter);
  Result<v1::FineTuningJob> redrive_job(const std::string& id, double deadline_seconds);  // 0: none
  // Waits until it is written: up to Options::generation.
  Result<v1::Checkpoint> create_checkpoint(const std::string& job);
  // A page of those that a job has written, newest first, also those that were dropped since.
  Result<v1::ListFineTuningCheckpointsResponse> list_checkpoints(
      const v1::ListFineTuningCheckpointsRequest& request);
  // With `probe` a worker does one update: waits up to Options::probe.
  Result<v1::Estimate> estimate_job(const v1::FineTuningJobSpec& spec, bool probe = false);
  // Waits for a worker: up to Options::generation.
  Result<v1::HeadSelectionReport> preview_head_selection(
      const v1::PreviewHeadSelectionRequest& request);
  Result<v1::ListFineTuningEventsResponse> list_events(
      const v1::ListFineTuningEventsRequest& request);

  // Calls back with every message of the watch, in order, until the job has ended (OK), the
  // callback returns false (OK) or `stop` is requested (CANCELLED). A broken connection is taken up
  // again after the last event that was delivered, for as long as the server is away; nothing comes
  // twice.
  using WatchCallback = std::function<bool(const v1::WatchFineTuningJobResponse&)>;
  Status watch_job(const std::string& id, int64_t after_sequence, const WatchCallback& callback);

  Result<v1::Evaluation> create_evaluation(const v1::CreateEvaluationRequest& request);
  Result<v1::Evaluation> get_evaluation(const std::string& id, bool with_pictures = false);
  Result<v1::ListEvaluationsResponse> list_evaluations(const v1::ListEvaluationsRequest& request);
  Result<v1::Evaluation> cancel_evaluation(const std::string& id);
  Result<v1::DeleteEvaluationResponse> delete_evaluation(const std::string& id);
  // What a SUCCEEDED one has published, as download_adapter.
  Status download_evaluation(const std::string& id, const std::filesystem::path& folder);
  Result<v1::ListEvaluationSamplesResponse> list_evaluation_samples(
      const v1::ListEvaluationSamplesRequest& request);
  // What b has measured against a, item by item.
  Result<v1::CompareEvaluationsResponse> compare_evaluations(
      const v1::CompareEvaluationsRequest& request);
  // As watch_job.
  using EvaluationCallback = std::function<bool(const v1::WatchEvaluationResponse&)>;
  Status watch_evaluation(const std::string& id, int64_t after_sequence,
                          const EvaluationCallback& callback);

  // Streams the file's bytes; `header` without size. The reply has the server's verdict: a file
  // that is not READY comes back as a File with findings, not as an error. `progress` gets bytes
  // sent so far.
  Result<v1::File> upload_file(
      const std::filesystem::path& path, v1::UploadFileRequest::Header header,
      const std::function<void(int64_t sent, int64_t total)>& progress = {});
  Result<v1::File> get_file(const std::string& id);
  Result<v1::ListFilesResponse> list_files(const v1::ListFilesRequest& request);
  Result<v1::ListFindingsResponse> list_findings(const v1::ListFindingsRequest& request);
  Result<v1::DeleteFileResponse> delete_file(const std::string& id);
  // Calls back with every message, the verdict last, until the server is through or the callback
  // returns false (OK). Up to Options::generation.
  using ValidateCallback = std::function<bool(const v1::ValidateFileResponse&)>;
  Status validate_file(const v1::ValidateFileRequest& request, const ValidateCallback& callback);
  Result<v1::PreviewFileResponse> preview_file(const v1::PreviewFileRequest& request);
  // Writes the file's bytes to `to`, which must not exist.
  Status download_file(const std::string& id, const std::filesystem::path& to);

  Result<v1::ListAdaptersResponse> list_adapters(const v1::ListAdaptersRequest& request);
  Result<v1::Adapter> get_adapter(const std::string& id);
  Result<v1::Adapter> load_adapter(const std::string& id, double wait_seconds, bool pin = false,
                                   bool allow_no_effect = false);
  Result<v1::Adapter> pin_adapter(const std::string& id, bool pinned);
  Result<v1::Adapter> unload_adapter(const std::string& id);
  Result<v1::DeleteAdapterResponse> delete_adapter(const std::string& id);
  // Waits for the workers, up to the request's wait_seconds (60 unless set). A request_id is added.
  Result<v1::AdapterAlias> set_adapter_alias(v1::SetAdapterAliasRequest request);
  Result<v1::AdapterAlias> delete_adapter_alias(const std::string& alias);
  Result<v1::ListAdapterAliasesResponse> list_adapter_aliases(
      const v1::ListAdapterAliasesRequest& request);
  // Unpacks the artefact into `folder`, which must not exist or be empty, and holds every file
  // against checksums.json. After a failure nothing is left there.
  Status download_adapter(const std::string& id, const std::filesystem::path& folder);
  // Sends the folder's adapter (adapter_archive.h) and waits for the worker that checks it: up to
  // Options::generation.
  Result<v1::Adapter> import_adapter(const std::filesystem::path& folder,
                                     v1::ImportAdapterRequest::Header header);
  // Waits for the worker that makes it, as long.
  Result<v1::Export> export_adapter(const v1::ExportAdapterRequest& request);
  // As download_adapter.
  Status download_export(const std::string& id, const std::filesystem::path& folder);

  Result<v1::GenerateResponse> generate(const v1::GenerateRequest& request);
  // Calls back with start, deltas and finish. The callback returns false to stop the generation.
  using StreamCallback = std::function<bool(const v1::GenerateStreamResponse&)>;
  Status generate_stream(const v1::GenerateRequest& request, const StreamCallback& callback);

  // The ids that a generation would read, and their text; a worker that serves the model answers.
  Result<v1::TokenizeResponse> tokenize(const v1::TokenizeRequest& request);
  Result<v1::DetokenizeResponse> detokenize(const v1::DetokenizeRequest& request);
  Result<v1::TokenizerInfo> tokenizer_info(const v1::GetTokenizerInfoRequest& request);

  Result<v1::ListModelsResponse> list_models();
  Result<v1::Model> get_model(const std::string& name);
  Result<v1::ListPresetsResponse> list_presets();
  Result<v1::Preset> get_preset(const std::string& name, const std::string& model);
  Result<v1::ServerCapabilities> capabilities();
  Result<v1::ModelLimits> model_limits(const std::string& model, const std::string& method);
  // The platform examined just now; for operators, as all below.
  Result<v1::Health> health();
  Result<v1::Quota> quota(const std::string& tenant);  // empty: the caller's
  Result<v1::Quota> set_quota(const v1::SetQuotaRequest& request);
  Result<v1::ListWorkersResponse> list_workers();  // all of them
  Result<v1::Worker> update_worker(const std::string& id, bool draining);
  Result<v1::Queue> queue(const std::string& pool, int count);  // empty: every pool; 0: 20 jobs

  Result<v1::Caller> who_am_i();
  // A repeat that finds the key made gets it without its secret: then revoke it and make another.
  Result<v1::ApiKey> create_api_key(const v1::CreateApiKeyRequest& request);
  Result<v1::ListApiKeysResponse> list_api_keys(const std::string& tenant);  // empty: yours
  Result<v1::ApiKey> revoke_api_key(const std::string& id);
  Result<v1::GetUsageResponse> usage(const v1::GetUsageRequest& request);

 private:
  template <typename Stub, typename Request, typename Reply>
  Result<Reply> call(Stub& stub,
                     grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                     const Request& request, std::chrono::milliseconds timeout);
  [[nodiscard]] std::string request_id() const;  // of the next call that changes something

  Options options_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::FineTuningService::Stub> jobs_;
  std::unique_ptr<v1::EvaluationService::Stub> evaluations_;
  std::unique_ptr<v1::FileService::Stub> files_;
  std::unique_ptr<v1::AdapterService::Stub> adapters_;
  std::unique_ptr<v1::InferenceService::Stub> inference_;
  std::unique_ptr<v1::ModelService::Stub> models_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
};

// Whether a job or an evaluation in this state is over; a paused one may go on.
bool has_ended(v1::JobState state);

// A request id for a call that must have one effect however often it is sent.
std::string new_request_id();

}  // namespace dex::client
