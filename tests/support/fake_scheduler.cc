#include "tests/support/fake_scheduler.h"

#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/server_builder.h>

#include <chrono>

namespace dex::support {

namespace {
const grpc::Status kAway{grpc::StatusCode::UNAVAILABLE, "the store is away"};
}

FakeScheduler::FakeScheduler() {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

FakeScheduler::~FakeScheduler() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
}

void FakeScheduler::offer(const iv1::ClaimedJob& job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
  }
  changed_.notify_all();
}

void FakeScheduler::set_verdict(iv1::AttemptVerdict::Verdict verdict) {
  const std::lock_guard lock(mutex_);
  verdict_ = verdict;
}

void FakeScheduler::set_checkpoint_request(const std::string& request) {
  const std::lock_guard lock(mutex_);
  checkpoint_request_ = request;
}

void FakeScheduler::set_lease(int64_t lease_ms) {
  const std::lock_guard lock(mutex_);
  lease_ms_ = lease_ms;
}

void FakeScheduler::set_desired(const std::vector<iv1::DesiredAdapter>& desired) {
  const std::lock_guard lock(mutex_);
  desired_ = desired;
  ++desired_revision_;
}

void FakeScheduler::set_outage(Outage outage) {
  const std::lock_guard lock(mutex_);
  outage_ = outage;
}

void FakeScheduler::set_outage_of_finish(bool on) {
  const std::lock_guard lock(mutex_);
  finish_away_ = on;
}

void FakeScheduler::set_finish_state(const std::string& state) {
  const std::lock_guard lock(mutex_);
  finish_state_ = state;
}

void FakeScheduler::refuse_success(bool on) {
  const std::lock_guard lock(mutex_);
  refuse_success_ = on;
}

void FakeScheduler::forget_worker() {
  const std::lock_guard lock(mutex_);
  known_ = false;
}

bool FakeScheduler::wait(const std::function<bool(const Heard&)>& condition) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(30), [&] { return condition(heard_); });
}

FakeScheduler::Heard FakeScheduler::heard() {
  const std::lock_guard lock(mutex_);
  return heard_;
}

grpc::Status FakeScheduler::changed(std::unique_lock<std::mutex>& lock) {
  const bool away = outage_ == Outage::kAfter;
  lock.unlock();
  changed_.notify_all();
  return away ? kAway : grpc::Status::OK;
}

grpc::Status FakeScheduler::refuse() {
  ++heard_.refused;
  changed_.notify_all();
  return kAway;
}

grpc::Status FakeScheduler::Register(grpc::ServerContext*, const iv1::RegisterRequest* in,
                                     iv1::RegisterResponse* out) {
  std::unique_lock lock(mutex_);
  if (outage_ == Outage::kBefore) return refuse();
  heard_.registrations.push_back(*in);
  known_ = true;
  out->set_lease_ms(lease_ms_);
  out->set_beat_ms(50);
  return changed(lock);
}

grpc::Status FakeScheduler::Claim(grpc::ServerContext* context, const iv1::ClaimRequest* in,
                                  iv1::ClaimResponse* out) {
  std::unique_lock lock(mutex_);
  if (outage_ == Outage::kBefore) return refuse();
  heard_.claims.push_back(*in);
  if (!known_) {
    out->mutable_unknown();
    return changed(lock);
  }
  const auto replay = given_.find(in->claim_id());
  if (replay != given_.end()) {
    *out->mutable_job() = replay->second;
    return changed(lock);
  }
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::milliseconds(std::min<int64_t>(in->wait_ms(), 2000));
  // A long poll that looks now and then whether its caller is still there.
  while (jobs_.empty() && !closing_ && !context->IsCancelled() &&
         std::chrono::steady_clock::now() < end) {
    changed_.wait_for(lock, std::chrono::milliseconds(20));
  }
  if (jobs_.empty()) {
    out->mutable_none();
    return changed(lock);
  }
  *out->mutable_job() = jobs_.front();
  given_[in->claim_id()] = jobs_.front();
  jobs_.pop_front();
  return changed(lock);
}

grpc::Status FakeScheduler::Heartbeat(grpc::ServerContext*, const iv1::HeartbeatRequest* in,
                                      iv1::HeartbeatResponse* out) {
  std::unique_lock lock(mutex_);
  if (outage_ == Outage::kBefore) return refuse();
  heard_.beats.push_back(*in);
  out->set_unknown(!known_);
  for (const auto& attempt : in->attempts()) {
    const auto [stored, is_new] = heard_.stored_beats.emplace(attempt.beat_seq(), attempt);
    if (!is_new && !google::protobuf::util::MessageDifferencer::Equals(stored->second, attempt)) {
      ++heard_.different_repeats;
    }
    auto& verdict = *out->add_attempts();
    verdict.set_job_id(attempt.job_id());
    verdict.set_epoch(attempt.epoch());
    verdict.set_verdict(verdict_);
    verdict.set_expires_in_ms(3000);
    verdict.set_checkpoint_request(checkpoint_request_);
  }
  out->set_desired_revision(desired_revision_);
  if (in->desired_revision() != desired_revision_) {
    for (const auto& desired : desired_) *out->add_desired() = desired;
  }
  return changed(lock);
}

grpc::Status FakeScheduler::Finish(grpc::ServerContext*, const iv1::FinishRequest* in,
                                   iv1::FinishResponse* out) {
  std::unique_lock lock(mutex_);
  if (outage_ == Outage::kBefore) return refuse();
  if (refuse_success_ && in->outcome() == iv1::OUTCOME_SUCCESS) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "no checksums.json"};
  }
  heard_.finishes.push_back(*in);
  out->set_state(finish_state_);
  const bool away = finish_away_;
  const auto status = changed(lock);
  return away ? kAway : status;
}

grpc::Status FakeScheduler::Drain(grpc::ServerContext*, const iv1::DrainRequest* in,
                                  iv1::DrainResponse*) {
  std::unique_lock lock(mutex_);
  if (outage_ == Outage::kBefore) return refuse();
  heard_.drains.push_back(*in);
  return changed(lock);
}

}  // namespace dex::support
