#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "dex/internal/v1/worker.pb.h"

namespace dex::agent {

namespace iv1 = dex::internal::v1;

// What an attempt has to tell the scheduler, cut into beats. A beat that got no answer is sent
// again unchanged, with its number, because the scheduler may have stored it: so each event arrives
// once. Thread-safe.
class AttemptLog {
 public:
  struct Options {
    size_t events_a_beat = 128;  // jobs.md §3, beat
    size_t event_bytes_a_beat = 32 << 10;
    size_t most_waiting = 4096;  // beyond it the oldest metrics point goes first
  };
  AttemptLog(std::string job_id, int64_t epoch);
  AttemptLog(std::string job_id, int64_t epoch, const Options& options);

  void set_progress(dex::v1::JobPhase phase, const dex::v1::Progress& progress);
  void set_checkpoint(const iv1::CheckpointRef& checkpoint);
  // Offers none until there is another one; the scheduler keeps what it has.
  void clear_checkpoint();
  void add_event(dex::v1::FineTuningEvent event);

  // The unanswered beat again, else a new one with the next number.
  iv1::AttemptBeat beat();
  // The scheduler has the beat of that number.
  void answered(int64_t beat_seq);

  // Waits until the scheduler has every event; false when timeout_ms passed before.
  bool wait_delivered(int64_t timeout_ms);
  // Enough waits that the next beat should not wait for its time.
  [[nodiscard]] bool urgent() const;
  [[nodiscard]] std::optional<iv1::CheckpointRef> checkpoint() const;
  [[nodiscard]] dex::v1::Progress progress() const;
  [[nodiscard]] dex::v1::JobPhase phase() const;  // with it; unspecified before the first

  // URIs of the checkpoints that the scheduler has: that of the last answered beat, and another one
  // of a beat without an answer, which it may have. Empty: none.
  struct Pointers {
    std::string acknowledged, offered;
    bool operator==(const Pointers&) const = default;
  };
  [[nodiscard]] Pointers pointers() const;

 private:
  void make_room();
  [[nodiscard]] bool delivered() const;

  const Options options_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable answered_;
  iv1::AttemptBeat latest_;  // job, epoch, phase, progress, checkpoint
  std::deque<dex::v1::FineTuningEvent> events_;
  std::optional<iv1::AttemptBeat> unanswered_;
  std::string acknowledged_;  // checkpoint of the last answered beat that had one
  int64_t last_seq_ = 0;
};

}  // namespace dex::agent
