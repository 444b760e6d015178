#include "tests/integration/scheduler_surface/surface_fixture.h"

namespace dex::server {

SurfaceTest::SurfaceTest() {
  reconnect();
}

void SurfaceTest::reconnect() {
  admin_ = v1::AdminService::NewStub(connected(scheduler_->grpc_address()));
}

base::Result<v1::FineTuningJob> SurfaceTest::pause(const std::string& id,
                                                   const std::string& request_id, bool* replayed) {
  v1::PauseFineTuningJobRequest request;
  request.set_id(id);
  request.set_request_id(request_id);
  return call(*jobs_, &JobStub::PauseFineTuningJob, request, 20000, replayed);
}

base::Result<v1::FineTuningJob> SurfaceTest::resume(const std::string& id,
                                                    const std::string& request_id, bool* replayed) {
  v1::ResumeFineTuningJobRequest request;
  request.set_id(id);
  request.set_request_id(request_id);
  return call(*jobs_, &JobStub::ResumeFineTuningJob, request, 20000, replayed);
}

base::Result<v1::FineTuningJob> SurfaceTest::update(const v1::UpdateFineTuningJobRequest& request) {
  return call(*jobs_, &JobStub::UpdateFineTuningJob, request);
}

base::Result<v1::FineTuningJob> SurfaceTest::redrive(const std::string& id,
                                                     const std::string& request_id,
                                                     bool* replayed) {
  v1::RedriveFineTuningJobRequest request;
  request.set_id(id);
  request.set_request_id(request_id);
  return call(*admin_, &AdminStub::RedriveFineTuningJob, request, 20000, replayed);
}

base::Result<v1::DeleteFineTuningJobResponse> SurfaceTest::remove(const std::string& id,
                                                                  bool with_adapter,
                                                                  const std::string& request_id,
                                                                  bool* replayed) {
  v1::DeleteFineTuningJobRequest request;
  request.set_id(id);
  request.set_delete_adapter(with_adapter);
  request.set_request_id(request_id);
  return call(*jobs_, &JobStub::DeleteFineTuningJob, request, 20000, replayed);
}

base::Status SurfaceTest::status_of(const std::string& job) {
  v1::GetFineTuningJobRequest request;
  request.set_id(job);
  return call(*jobs_, &JobStub::GetFineTuningJob, request).status();
}

base::Status SurfaceTest::status_of_adapter(const std::string& adapter) {
  v1::GetAdapterRequest request;
  request.set_id(adapter);
  return call(*adapters_, &AdapterStub::GetAdapter, request).status();
}

iv1::AttemptVerdict SurfaceTest::beat_as(const iv1::ClaimedJob& job, int64_t sequence,
                                         const std::function<void(iv1::AttemptBeat&)>& fill) {
  iv1::HeartbeatRequest request;
  request.set_worker_id("w1");
  auto& attempt = *request.add_attempts();
  attempt.set_job_id(job.job_id());
  attempt.set_epoch(job.epoch());
  attempt.set_beat_seq(sequence);
  attempt.set_phase(v1::JOB_PHASE_TRAINING);
  fill(attempt);
  const auto reply = call(*workers_, &iv1::WorkerService::Stub::Heartbeat, request);
  EXPECT_TRUE(reply.ok()) << reply.status().to_string();
  return reply.ok() && reply->attempts_size() == 1 ? reply->attempts(0) : iv1::AttemptVerdict();
}

base::Result<iv1::FinishResponse> SurfaceTest::finish_as(
    const iv1::ClaimedJob& job, iv1::Outcome outcome,
    const std::function<void(iv1::FinishRequest&)>& fill) {
  iv1::FinishRequest request;
  request.set_worker_id("w1");
  request.set_job_id(job.job_id());
  request.set_epoch(job.epoch());
  request.set_outcome(outcome);
  fill(request);
  return call(*workers_, &iv1::WorkerService::Stub::Finish, request);
}

void SurfaceTest::offer(const iv1::ClaimedJob& job, int step, iv1::CheckpointRef& checkpoint) {
  checkpoint.set_uri(job.attempt_dir() + "/step-" + std::to_string(step));
  checkpoint.set_manifest_sha256("feed" + std::to_string(step));
  checkpoint.set_step(static_cast<uint32_t>(step));
}

v1::FineTuningEvent SurfaceTest::point(int step) {
  v1::FineTuningEvent event;
  event.set_type("metrics");
  event.mutable_metrics()->set_step(static_cast<uint32_t>(step));
  event.mutable_metrics()->set_train_loss(3.5);
  return event;
}

std::vector<int64_t> SurfaceTest::listed(const std::string& id) {
  v1::ListFineTuningEventsRequest request;
  request.set_id(id);
  std::vector<int64_t> sequences;
  while (true) {
    const auto page = call(*jobs_, &JobStub::ListFineTuningEvents, request);
    EXPECT_TRUE(page.ok()) << page.status().to_string();
    if (!page.ok()) return sequences;
    for (const auto& event : page->events()) sequences.push_back(event.sequence());
    if (!page->has_more()) return sequences;
    request.set_after_sequence(sequences.back());
  }
}

std::vector<int64_t> SurfaceTest::watched(const std::string& id, int64_t after,
                                          grpc::Status* status) {
  grpc::ClientContext context;
  rpc::set_timeout(context, std::chrono::seconds(30));
  v1::WatchFineTuningJobRequest request;
  request.set_id(id);
  request.set_after_sequence(after);
  const auto reader = jobs_->WatchFineTuningJob(&context, request);
  std::vector<int64_t> sequences;
  v1::WatchFineTuningJobResponse message;
  while (reader->Read(&message)) {
    if (message.has_event()) sequences.push_back(message.event().sequence());
  }
  const grpc::Status end = reader->Finish();
  EXPECT_TRUE(status != nullptr || end.ok()) << end.error_message();
  if (status != nullptr) *status = end;
  return sequences;
}

}  // namespace dex::server
