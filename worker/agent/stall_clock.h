#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "dex/internal/v1/frames.pb.h"

namespace dex::agent {

namespace iv1 = dex::internal::v1;

// For how long a process has not got any further (jobs.md §4). A trainer gets further with each new
// step, and at one step with each phase, each type of event, each gate and a checkpoint that it had
// not reached there before: saving and publishing are no steps and take their time too. A loop that
// goes round repeats itself, so it can't pass for work. An evaluator has no steps that say as much;
// each of its frames comes from the loop that computes. Pure: the time is given. Not thread-safe.
class StallClock {
 public:
  enum class Signs { kSteps, kFrames };
  struct Options {
    Signs signs = Signs::kSteps;
    int64_t limit_ms = 0;        // 0 or less: nothing is ever a stall
    int64_t first_limit_ms = 0;  // until the first step, if it is longer: loading may take long
  };
  StallClock(const Options& options, int64_t now_ms) : options_(options), last_sign_ms_(now_ms) {}

  void heard(const iv1::TrainerReport& report, int64_t now_ms);
  [[nodiscard]] bool stalled(int64_t now_ms) const;
  [[nodiscard]] int64_t silent_ms(int64_t now_ms) const { return now_ms - last_sign_ms_; }

 private:
  // Whether the report shows something new.
  bool is_sign(const iv1::TrainerReport& report);

  const Options options_;
  int64_t last_sign_ms_;
  bool stepped_ = false;
  std::optional<uint32_t> step_;
  std::set<std::string> seen_;  // at step_
};

}  // namespace dex::agent
