#pragma once

#include <grpcpp/server.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dex/internal/v1/worker.grpc.pb.h"

namespace dex::support {

namespace iv1 = dex::internal::v1;

// A scheduler's worker listener on a free loopback port: hands out the jobs it is given, answers
// beats as told, and remembers all it heard. Thread-safe.
class FakeScheduler final : public iv1::WorkerService::Service {
 public:
  FakeScheduler();
  ~FakeScheduler() override;
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  void offer(const iv1::ClaimedJob& job);
  void set_verdict(iv1::AttemptVerdict::Verdict verdict);
  void set_checkpoint_request(const std::string& request);  // in every answer to a beat
  void set_lease(int64_t lease_ms);  // in every answer to Register; 3 s at first
  void set_desired(const std::vector<iv1::DesiredAdapter>& desired);
  // Calls fail UNAVAILABLE, before or after they took effect.
  enum class Outage { kNone, kBefore, kAfter };
  void set_outage(Outage outage);
  void set_outage_of_finish(bool on);               // Finish alone, after it took effect
  void set_finish_state(const std::string& state);  // of every answer to Finish; DONE at first
  void refuse_success(bool on);                     // Finish of a success: INVALID_ARGUMENT
  void forget_worker();                             // the next beat and claim answer "unknown"

  // Waits until `condition` holds of what was heard; false after 30 s.
  struct Heard {
    std::vector<iv1::RegisterRequest> registrations;
    std::vector<iv1::ClaimRequest> claims;
    std::vector<iv1::HeartbeatRequest> beats;
    std::vector<iv1::FinishRequest> finishes;
    std::vector<iv1::DrainRequest> drains;
    // By attempt's beat_seq, as a scheduler stores it: a repeat changes nothing.
    std::map<int64_t, iv1::AttemptBeat> stored_beats;
    int refused = 0;            // calls during an outage
    int different_repeats = 0;  // beats with a known number and other content
  };
  bool wait(const std::function<bool(const Heard&)>& condition);
  Heard heard();

  grpc::Status Register(grpc::ServerContext*, const iv1::RegisterRequest*,
                        iv1::RegisterResponse*) override;
  grpc::Status Claim(grpc::ServerContext*, const iv1::ClaimRequest*, iv1::ClaimResponse*) override;
  grpc::Status Heartbeat(grpc::ServerContext*, const iv1::HeartbeatRequest*,
                         iv1::HeartbeatResponse*) override;
  grpc::Status Finish(grpc::ServerContext*, const iv1::FinishRequest*,
                      iv1::FinishResponse*) override;
  grpc::Status Drain(grpc::ServerContext*, const iv1::DrainRequest*, iv1::DrainResponse*) override;

 private:
  grpc::Status changed(std::unique_lock<std::mutex>& lock);
  grpc::Status refuse();

  std::mutex mutex_;
  std::condition_variable changed_;
  Heard heard_;  // guarded by mutex_, as all below
  std::deque<iv1::ClaimedJob> jobs_;
  std::map<std::string, iv1::ClaimedJob> given_;  // by claim id
  iv1::AttemptVerdict::Verdict verdict_ = iv1::AttemptVerdict::VERDICT_OK;
  std::string checkpoint_request_;
  std::vector<iv1::DesiredAdapter> desired_;
  int64_t desired_revision_ = 1;
  int64_t lease_ms_ = 3000;
  Outage outage_ = Outage::kNone;
  bool finish_away_ = false;
  bool refuse_success_ = false;
  std::string finish_state_ = "DONE";
  bool known_ = false;
  bool closing_ = false;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace dex::support
