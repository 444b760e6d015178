#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "dex/internal/v1/worker.grpc.pb.h"
#include "services/base/status.h"

namespace dex::agent {

namespace iv1 = dex::internal::v1;

// The worker's calls to the scheduler, each with its deadline of jobs.md §9 (Register and Heartbeat
// 5 s, Claim 5 s more than it waits, Finish 10 s, Drain 5 s). They block; UNAVAILABLE and
// DEADLINE_EXCEEDED mean "no answer". Thread-safe.
class SchedulerClient {
 public:
  explicit SchedulerClient(const std::string& address);

  base::Result<iv1::RegisterResponse> register_worker(const iv1::RegisterRequest& request);
  // A stop ends the wait with CANCELLED; the scheduler may have granted a job all the same.
  base::Result<iv1::ClaimResponse> claim(const iv1::ClaimRequest& request,
                                         const std::stop_token& stop);
  base::Result<iv1::HeartbeatResponse> heartbeat(const iv1::HeartbeatRequest& request);
  base::Result<iv1::FinishResponse> finish(const iv1::FinishRequest& request);
  base::Status drain(const iv1::DrainRequest& request);

 private:
  std::unique_ptr<iv1::WorkerService::Stub> stub_;
};

// Whether a failure means that the scheduler did not answer, so that the same call is worth
// repeating; else it answered with a refusal.
bool no_answer(const base::Status& status);

}  // namespace dex::agent
