#include "worker/train/console_session.h"

#include <iomanip>
#include <sstream>

namespace dex::train {
namespace {

constexpr int64_t kLineEveryMs = 1000;

std::string number(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

std::string duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

}  // namespace

void ConsoleSession::progress(Phase phase, const Progress& progress) {
  if (phase != phase_) {
    phase_ = phase;
    if (phase != Phase::kTraining) out_ << "[" << name(phase) << "]" << std::endl;
  }
  if (phase != Phase::kTraining || progress.step == printed_step_ || !progress.train_loss) return;
  const int64_t now_ms = clock_.steady_ms();
  if (printed_ms_ >= 0 && now_ms - printed_ms_ < kLineEveryMs &&
      progress.step < progress.total_steps)
    return;
  printed_ms_ = now_ms;
  printed_step_ = progress.step;
  out_ << "step " << progress.step << "/" << progress.total_steps << "  loss "
       << number(*progress.train_loss, 4);
  if (progress.grad_norm) out_ << "  grad " << number(*progress.grad_norm, 3);
  if (progress.lambda_mean) out_ << "  lambda " << number(*progress.lambda_mean, 4);
  out_ << "  " << number(progress.tokens_per_second, 1) << " tok/s  left "
       << duration(progress.estimated_remaining_seconds) << std::endl;
}

void ConsoleSession::event(const Event& event) {
  if (event.type == "metrics") return;  // the progress line says it
  const char* level = event.level == Event::Level::kError  ? "error: "
                      : event.level == Event::Level::kWarn ? "warning: "
                                                           : "";
  const bool plain = event.type == "warning" || event.type == "advice";  // the level says it
  out_ << level << (plain ? "" : event.type + ": ") << event.message << std::endl;
}

void ConsoleSession::checkpoint(const CheckpointReport& report) {
  if (!report.error.empty()) {
    out_ << "checkpoint of step " << report.step << " failed: " << report.error << std::endl;
    return;
  }
  out_ << "checkpoint " << report.path << " (" << number(static_cast<double>(report.bytes) / 1e6, 1)
       << " MB in " << number(report.seconds, 1) << " s)" << std::endl;
}

void ConsoleSession::end(const Ending& ending) {
  if (ending.published) {
    out_ << "done: " << ending.published->path << " (" << ending.published->bytes << " bytes, "
         << evaluate::name(ending.published->branch_effect.verdict) << ")" << std::endl;
  } else if (ending.exit == Exit::kSuccess) {
    out_ << "done: this rank's share of the job" << std::endl;
  } else {
    out_ << (ending.code.empty() ? "stopped" : ending.code) << ": " << ending.message << std::endl;
  }
}

Command ConsoleSession::poll() {
  if (!signals_.token().stop_requested() || drain_told_) return {};
  drain_told_ = true;
  return {Command::Kind::kStop, "", StopReason::kDrain};
}

}  // namespace dex::train
