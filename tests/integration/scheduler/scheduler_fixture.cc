#include "tests/integration/scheduler/scheduler_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "services/base/sha256.h"
#include "tests/support/eventually.h"

namespace dex::server {

namespace fs = std::filesystem;

namespace {

// Shapes of SmolLM2-135M; the scheduler reads no weights.
constexpr const char* kConfig = R"({"model_type": "llama", "vocab_size": 49152, "hidden_size": 576,
  "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
  "head_dim": 64, "max_position_embeddings": 8192, "tie_word_embeddings": true, "attention_bias": false})";
constexpr const char* kModels =
    R"({"models": [{"name": "small-model", "folder": "small", "display_name": "Small",
  "family": "llama", "license": "Apache-2.0", "weights_sha256": "aa", "tokenizer_sha256": "bb",
  "chat_template_sha256": "cc", "languages": ["en"]}]})";

}  // namespace

std::string row(int number, int length) {
  const std::string filler(static_cast<size_t>(length), static_cast<char>('a' + number % 26));
  return R"({"prompt": "question )" + std::to_string(number) + R"(", "completion": ")" + filler +
         "\"}\n";
}

std::string checksums_of(const FileContents& files) {
  auto sums = nlohmann::json::object();
  for (const auto& [name, content] : files) sums[name] = base::sha256_hex(content);
  return sums.dump();
}

void expect_refused(const base::Status& status, const std::string& reason,
                    const std::string& field) {
  EXPECT_EQ(status.reason(), reason) << status.to_string();
  bool named = field.empty();
  for (const auto& violation : status.violations()) named = named || violation.field == field;
  EXPECT_TRUE(named) << field << " is not named by " << status.to_string();
}

SchedulerTest::SchedulerTest() {
  fs::create_directories(directory_ / "models/small");
  std::ofstream(directory_ / "models/models.json") << kModels;
  std::ofstream(directory_ / "models/small/config.json") << kConfig;
  scheduler_ = start(options());
  connect();
}

SchedulerOptions SchedulerTest::options() {
  SchedulerOptions options;
  options.redis = redis_.address();
  options.data_dir = directory_ / "data";
  options.models_file = directory_ / "models/models.json";
  options.times.lease_ms = lease_ms_;
  options.times.settle_ms = 1000;
  options.times.gap_ms = 2000;
  options.times.crash_backoff_ms = 300;
  options.times.retry_backoff_ms = 300;
  options.times.worker_timeout_ms = 60'000;
  options.sweep_ms = 100;
  options.archive_after_ms = archive_after_ms_;
  options.store_patience = store_patience_;
  return options;
}

std::unique_ptr<Scheduler> SchedulerTest::start(const SchedulerOptions& options) {
  auto scheduler = Scheduler::start(options);
  if (!scheduler.ok()) throw std::runtime_error(scheduler.status().to_string());
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!(*scheduler)->ready().ok()) {
    if (std::chrono::steady_clock::now() > until)
      throw std::runtime_error((*scheduler)->ready().to_string());
    std::this_thread::yield();
  }
  return std::move(scheduler).value();
}

void SchedulerTest::connect() {
  const auto channel = connected(scheduler_->grpc_address());
  jobs_ = v1::FineTuningService::NewStub(channel);
  files_ = v1::FileService::NewStub(channel);
  adapters_ = v1::AdapterService::NewStub(channel);
  models_ = v1::ModelService::NewStub(channel);
  routes_ = iv1::RouteService::NewStub(channel);
  workers_ = iv1::WorkerService::NewStub(connected(scheduler_->worker_address()));
}

std::shared_ptr<grpc::Channel> SchedulerTest::connected(const std::string& address) {
  auto channel = rpc::channel(address);
  const auto limit = std::chrono::system_clock::now() + std::chrono::seconds(20);
  EXPECT_TRUE(channel->WaitForConnected(limit)) << address;
  return channel;
}

void SchedulerTest::restart() {
  scheduler_.reset();
  scheduler_ = start(options());
  connect();
}

std::string SchedulerTest::download_file(const std::string& id) {
  grpc::ClientContext context;
  rpc::set_timeout(context, std::chrono::seconds(20));
  v1::DownloadFileRequest request;
  request.set_id(id);
  const auto reader = files_->DownloadFile(&context, request);
  v1::DownloadFileResponse piece;
  std::string bytes;
  while (reader->Read(&piece)) bytes += piece.chunk();
  const auto status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return bytes;
}

base::Result<v1::File> SchedulerTest::upload(const std::string& bytes,
                                             v1::UploadFileRequest::Header header,
                                             std::string* replayed) {
  if (header.filename().empty()) header.set_filename("data.jsonl");
  grpc::ClientContext context;
  rpc::set_timeout(context, std::chrono::seconds(30));
  v1::File file;
  const auto writer = files_->UploadFile(&context, &file);
  v1::UploadFileRequest request;
  *request.mutable_header() = header;
  bool open = writer->Write(request);
  constexpr size_t kChunk = 1 << 20;
  for (size_t at = 0; open && at < bytes.size(); at += kChunk) {
    request.set_chunk(bytes.substr(at, kChunk));
    open = writer->Write(request);
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  if (replayed != nullptr && context.GetServerTrailingMetadata().contains("dex-replayed"))
    *replayed = "true";
  if (!status.ok()) return rpc::from_grpc(status);
  return file;
}

std::string SchedulerTest::upload_good(int rows, int longest) {
  std::string bytes;
  for (int i = 0; i < rows; ++i) bytes += row(i, i == 0 ? longest : 100);
  const auto file = upload(bytes);
  EXPECT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->state(), v1::FILE_STATE_READY) << file->DebugString();
  return file->id();
}

v1::FineTuningJobSpec SchedulerTest::spec(const std::string& file) {
  v1::FineTuningJobSpec spec;
  spec.set_model("small-model");
  spec.set_training_file(file);
  spec.mutable_hyperparameters()->set_max_steps(20);
  return spec;
}

base::Result<v1::FineTuningJob> SchedulerTest::create(const v1::CreateFineTuningJobRequest& request,
                                                      bool* replayed) {
  return call(*jobs_, &v1::FineTuningService::Stub::CreateFineTuningJob, request, 20000, replayed);
}

v1::FineTuningJob SchedulerTest::create_good(const std::string& request_id) {
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  request.set_request_id(request_id);
  const auto job = create(request);
  EXPECT_TRUE(job.ok()) << job.status().to_string();
  return job.ok() ? *job : v1::FineTuningJob();
}

v1::FineTuningJob SchedulerTest::get(const std::string& id) {
  v1::GetFineTuningJobRequest request;
  request.set_id(id);
  const auto job = call(*jobs_, &v1::FineTuningService::Stub::GetFineTuningJob, request);
  EXPECT_TRUE(job.ok()) << job.status().to_string();
  return job.ok() ? *job : v1::FineTuningJob();
}

void SchedulerTest::enlist(const std::string& worker, const std::vector<std::string>& models) {
  iv1::RegisterRequest request;
  request.set_worker_id(worker);
  request.add_pools("cpu");
  request.set_slots(1);
  request.set_inference_address("127.0.0.1:1");
  request.add_bases()->set_name("small-model");
  for (const std::string& model : models) request.add_models(model);
  const auto reply = call(*workers_, &iv1::WorkerService::Stub::Register, request);
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_EQ(reply->lease_ms(), lease_ms_);
}

iv1::ClaimResponse SchedulerTest::claim(const std::string& worker, int64_t wait_ms,
                                        const std::string& claim_id) {
  iv1::ClaimRequest request;
  request.set_worker_id(worker);
  request.set_claim_id(claim_id.empty() ? "claim-" + std::to_string(++next_) : claim_id);
  request.add_pools("cpu");
  request.set_wait_ms(wait_ms);
  const auto reply = call(*workers_, &iv1::WorkerService::Stub::Claim, request, 25000);
  EXPECT_TRUE(reply.ok()) << reply.status().to_string();
  return reply.ok() ? *reply : iv1::ClaimResponse();
}

iv1::ClaimedJob SchedulerTest::claimed() {
  const auto answer = claim("w1", 15'000);
  EXPECT_TRUE(answer.has_job());
  return answer.job();
}

iv1::HeartbeatResponse SchedulerTest::beat(const iv1::ClaimedJob& job, int64_t sequence,
                                           const std::string& worker,
                                           std::vector<v1::FineTuningEvent> events) {
  iv1::HeartbeatRequest request;
  request.set_worker_id(worker);
  auto& attempt = *request.add_attempts();
  attempt.set_job_id(job.job_id());
  attempt.set_epoch(job.epoch());
  attempt.set_beat_seq(sequence);
  attempt.set_phase(v1::JOB_PHASE_TRAINING);
  attempt.mutable_progress()->set_step(static_cast<uint32_t>(sequence));
  attempt.mutable_progress()->set_total_steps(20);
  for (auto& event : events) *attempt.add_events() = std::move(event);
  const auto reply = call(*workers_, &iv1::WorkerService::Stub::Heartbeat, request);
  EXPECT_TRUE(reply.ok()) << reply.status().to_string();
  return reply.ok() ? *reply : iv1::HeartbeatResponse();
}

void SchedulerTest::let_lease_run_out(const std::string& job) {
  redis_.call({"HSET", "dex:{s0}:job:" + job, "lease_ms", "1"});
  redis_.call({"ZADD", "dex:{s0}:lease", "1", job});
}

bool SchedulerTest::is_told_to_stop(const iv1::ClaimedJob& job) {
  int64_t sequence = 0;
  return support::eventually([&] {
    return beat(job, ++sequence).attempts(0).verdict() == iv1::AttemptVerdict::VERDICT_CANCEL;
  });
}

std::string SchedulerTest::publish_files(const iv1::ClaimedJob& job, const std::string& worker,
                                         FileContents files, iv1::AttemptResult result) {
  files.try_emplace("checksums.json", checksums_of(files));
  const std::string uri = job.attempt_dir() + "/final";
  fs::create_directories(directory_ / "data" / uri);
  for (const auto& [name, content] : files)
    std::ofstream(directory_ / "data" / uri / name) << content;
  result.set_uri(uri);
  result.set_manifest_sha256(base::sha256_hex(files.at("checksums.json")));
  iv1::FinishRequest request;
  request.set_worker_id(worker);
  request.set_job_id(job.job_id());
  request.set_epoch(job.epoch());
  request.set_outcome(iv1::OUTCOME_SUCCESS);
  *request.mutable_result() = std::move(result);
  const auto reply = call(*workers_, &iv1::WorkerService::Stub::Finish, request);
  EXPECT_TRUE(reply.ok()) << reply.status().to_string();
  return reply.ok() ? reply->state() : "";
}

std::string SchedulerTest::finish_well(const iv1::ClaimedJob& job, const std::string& worker,
                                       const std::string& artifact_class, const std::string& form,
                                       const std::string& method) {
  iv1::AttemptResult result;
  result.set_bytes(1234);
  result.set_trained_tokens(4321);
  result.mutable_metrics()->set_valid_loss(2.5);
  result.mutable_branch_effect()->set_verdict(v1::BranchEffect::VERDICT_ACTIVE);
  result.mutable_branch_effect()->add_per_layer()->set_lambda(0.25);
  result.mutable_adapter()->set_form(form);
  result.mutable_adapter()->set_method(method);
  result.mutable_adapter()->set_base_weights_sha256("aa");  // of models.json
  result.mutable_adapter()->set_artifact_class(artifact_class);
  return publish_files(
      job, worker,
      {{"adapter_config.json", "{}"}, {"adapter_model.safetensors", "weights of " + job.job_id()}},
      std::move(result));
}

std::string SchedulerTest::finish(const iv1::ClaimedJob& job, iv1::Outcome outcome,
                                  const std::string& code, const std::string& worker) {
  iv1::FinishRequest request;
  request.set_worker_id(worker);
  request.set_job_id(job.job_id());
  request.set_epoch(job.epoch());
  request.set_outcome(outcome);
  request.set_code(code);
  request.set_message(code.empty() ? "" : "it ended with " + code);
  request.set_param("learning_rate");
  const auto reply = call(*workers_, &iv1::WorkerService::Stub::Finish, request);
  EXPECT_TRUE(reply.ok()) << reply.status().to_string();
  return reply.ok() ? reply->state() : "";
}

iv1::HeartbeatResponse SchedulerTest::report_engine(const std::string& worker,
                                                    std::vector<iv1::AdapterStatus> adapters,
                                                    int64_t desired_revision) {
  iv1::HeartbeatRequest request;
  request.set_worker_id(worker);
  request.set_desired_revision(desired_revision);
  auto& engine = *request.add_engines();
  engine.set_base("small-model");
  engine.set_state(iv1::EngineStatus::STATE_SERVING);
  engine.set_dtype("int8");
  for (auto& adapter : adapters) *engine.add_adapters() = std::move(adapter);
  const auto reply = call(*workers_, &iv1::WorkerService::Stub::Heartbeat, request);
  EXPECT_TRUE(reply.ok()) << reply.status().to_string();
  return reply.ok() ? *reply : iv1::HeartbeatResponse();
}

std::string SchedulerTest::train_adapter(const std::string& artifact_class, const std::string& form,
                                         const std::string& method) {
  enlist();
  const auto job = create_good();
  const auto claimed = claim();
  EXPECT_TRUE(claimed.has_job());
  EXPECT_EQ(finish_well(claimed.job(), "w1", artifact_class, form, method), "SUCCEEDED");
  return get(job.id()).fine_tuned_model();
}

std::string SchedulerTest::http(const std::string& path) {
  const std::string address = scheduler_->metrics_address();
  const size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(::send(socket, request.data(), request.size(), 0),
            static_cast<ssize_t>(request.size()));
  std::string reply;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::recv(socket, buffer, sizeof buffer, 0)) > 0;)
    reply.append(buffer, static_cast<size_t>(n));
  ::close(socket);
  return reply;
}

}  // namespace dex::server
