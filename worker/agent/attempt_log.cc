#include "worker/agent/attempt_log.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace dex::agent {

namespace {

// Cut between characters: a message with half of one is refused whole by whoever reads it, and the
// beats behind it would be as well.
void shorten(std::string& text, size_t limit) {
  if (text.size() <= limit) return;
  size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  text.resize(end);
}

}  // namespace

AttemptLog::AttemptLog(std::string job_id, int64_t epoch)
    : AttemptLog(std::move(job_id), epoch, Options()) {}

AttemptLog::AttemptLog(std::string job_id, int64_t epoch, const Options& options)
    : options_(options) {
  latest_.set_job_id(std::move(job_id));
  latest_.set_epoch(epoch);
}

void AttemptLog::set_progress(dex::v1::JobPhase phase, const dex::v1::Progress& progress) {
  const std::lock_guard lock(mutex_);
  latest_.set_phase(phase);
  *latest_.mutable_progress() = progress;
}

void AttemptLog::set_checkpoint(const iv1::CheckpointRef& checkpoint) {
  const std::lock_guard lock(mutex_);
  *latest_.mutable_checkpoint() = checkpoint;
}

void AttemptLog::clear_checkpoint() {
  const std::lock_guard lock(mutex_);
  latest_.clear_checkpoint();
}

void AttemptLog::add_event(dex::v1::FineTuningEvent event) {
  const std::lock_guard lock(mutex_);
  // One that fits in no beat would block all behind it: its words stay, its figures go.
  if (event.ByteSizeLong() > options_.event_bytes_a_beat) {
    event.clear_data();
    shorten(*event.mutable_message(), 1024);
  }
  if (events_.size() >= options_.most_waiting) make_room();
  events_.push_back(std::move(event));
}

void AttemptLog::make_room() {
  const auto metrics = std::ranges::find_if(events_, [](const auto& e) { return e.has_metrics(); });
  events_.erase(metrics == events_.end() ? events_.begin() : metrics);
}

iv1::AttemptBeat AttemptLog::beat() {
  const std::lock_guard lock(mutex_);
  if (unanswered_) return *unanswered_;
  iv1::AttemptBeat beat = latest_;
  beat.set_beat_seq(++last_seq_);
  size_t bytes = 0;
  while (!events_.empty() && static_cast<size_t>(beat.events_size()) < options_.events_a_beat) {
    bytes += events_.front().ByteSizeLong();
    if (bytes > options_.event_bytes_a_beat && beat.events_size() > 0) break;
    *beat.add_events() = std::move(events_.front());
    events_.pop_front();
  }
  unanswered_ = beat;
  return beat;
}

void AttemptLog::answered(int64_t beat_seq) {
  {
    const std::lock_guard lock(mutex_);
    if (unanswered_ && unanswered_->beat_seq() == beat_seq) {
      if (unanswered_->has_checkpoint()) acknowledged_ = unanswered_->checkpoint().uri();
      unanswered_.reset();
    }
  }
  answered_.notify_all();
}

bool AttemptLog::wait_delivered(int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  return answered_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                            [this] { return delivered(); });
}

bool AttemptLog::delivered() const {
  return events_.empty() && (!unanswered_ || unanswered_->events_size() == 0);
}

bool AttemptLog::urgent() const {
  const std::lock_guard lock(mutex_);
  return events_.size() >= options_.events_a_beat / 2;
}

std::optional<iv1::CheckpointRef> AttemptLog::checkpoint() const {
  const std::lock_guard lock(mutex_);
  if (!latest_.has_checkpoint()) return std::nullopt;
  return latest_.checkpoint();
}

AttemptLog::Pointers AttemptLog::pointers() const {
  const std::lock_guard lock(mutex_);
  Pointers pointers{acknowledged_, ""};
  if (unanswered_ && unanswered_->checkpoint().uri() != acknowledged_)
    pointers.offered = unanswered_->checkpoint().uri();
  return pointers;
}

dex::v1::JobPhase AttemptLog::phase() const {
  const std::lock_guard lock(mutex_);
  return latest_.phase();
}

dex::v1::Progress AttemptLog::progress() const {
  const std::lock_guard lock(mutex_);
  return latest_.progress();
}

}  // namespace dex::agent
