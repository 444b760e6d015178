#pragma once

#include <chrono>
#include <string>

#include "client/cli/output.h"
#include "dex/v1/finetuning.pb.h"

namespace dex::cli {

// A line on stderr that is redrawn on a terminal. Off a terminal nothing is drawn.
class StatusLine {
 public:
  explicit StatusLine(Output& output) : output_(output) {}
  ~StatusLine() { clear(); }
  void draw(const std::string& text);  // at most ten times a second
  void clear();

 private:
  Output& output_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

class UploadBar {
 public:
  explicit UploadBar(Output& output) : line_(output) {}
  void show(int64_t sent, int64_t total);
  void clear() { line_.clear(); }

 private:
  StatusLine line_;
};

// A job as it runs: a bar with step, loss, λ, branch ratio, tokens/s and time left on a terminal,
// plain lines elsewhere.
class JobProgress {
 public:
  explicit JobProgress(Output& output) : output_(output), line_(output) {}
  void show(const v1::FineTuningJob& snapshot);
  void show(const v1::FineTuningEvent& event);
  void clear() { line_.clear(); }

 private:
  void say(const std::string& text);  // a line that stays
  void redraw();
  std::string time_left() const;  // "  3 m 20 s left", or nothing when it can't be told

  Output& output_;
  StatusLine line_;
  v1::FineTuningJob job_;
  v1::Metrics metrics_;
  double branch_ratio_ = 0;  // of the last evaluation after an update; 0: none yet, or no branch
  uint32_t total_steps_ = 0;
  uint32_t last_printed_step_ = 0;
};

}  // namespace dex::cli
