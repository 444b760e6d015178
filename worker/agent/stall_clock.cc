#include "worker/agent/stall_clock.h"

#include <algorithm>

namespace dex::agent {

void StallClock::heard(const iv1::TrainerReport& report, int64_t now_ms) {
  const bool sign = is_sign(report);
  if (sign || options_.signs == Signs::kFrames) last_sign_ms_ = now_ms;
}

bool StallClock::is_sign(const iv1::TrainerReport& report) {
  switch (report.report_case()) {
    case iv1::TrainerReport::kProgress: {
      const auto& progress = report.progress();
      const uint32_t step = progress.progress().step();
      const bool new_step = step_ != step;  // a smaller one too: a trainer that has gone back
      if (new_step) {
        // The figure of time belongs to an update; before the first there is none.
        if (progress.step_seconds() > 0) stepped_ = true;
        step_ = step;
        seen_.clear();
      }
      const bool new_phase = seen_.insert("phase " + std::to_string(progress.phase())).second;
      return new_step || new_phase;
    }
    case iv1::TrainerReport::kEvent:
      // Gates are judged one after the other, each over all held-out rows.
      return seen_.insert("event " + report.event().type() + report.event().gate_result().gate())
          .second;
    case iv1::TrainerReport::kCheckpoint:
      return seen_.insert("checkpoint").second;
    case iv1::TrainerReport::kReady:
    case iv1::TrainerReport::kResult:
      return true;
    case iv1::TrainerReport::REPORT_NOT_SET:
      return false;
  }
  return false;
}

bool StallClock::stalled(int64_t now_ms) const {
  if (options_.limit_ms <= 0) return false;
  const int64_t limit =
      stepped_ ? options_.limit_ms : std::max(options_.limit_ms, options_.first_limit_ms);
  return silent_ms(now_ms) > limit;
}

}  // namespace dex::agent
