#include "client/cli/progress_view.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ostream>

#include "client/cli/job_view.h"
#include "client/cli/names.h"

namespace dex::cli {

namespace {

constexpr auto kRedrawEvery = std::chrono::milliseconds(100);

std::string bar(double ratio, size_t width) {
  const auto filled =
      static_cast<size_t>(std::clamp(ratio, 0.0, 1.0) * static_cast<double>(width) + 0.5);
  std::string text;
  for (size_t i = 0; i < width; ++i) text += i < filled ? "█" : "░";
  return text;
}

std::string figures(const v1::Metrics& metrics, double branch_ratio) {
  const std::string branch = branch_ratio > 0 ? "  branch " + fixed(branch_ratio, 5) : "";
  std::array<char, 160> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "loss %.4f  λ %.4f%s  %.0f tok/s",
                metrics.train_loss(), metrics.lambda_mean(), branch.c_str(),
                metrics.tokens_per_second());
  return buffer.data();
}

// The sentence of an event that is worth a line of its own; "" for those that only move the bar.
// `start`: what the job was before its first update.
std::string sentence(const v1::FineTuningEvent& event, const std::string& start) {
  if (event.has_metrics() || event.type() == "metrics") return "";
  if (event.has_eval_complete()) {
    const auto& eval = event.eval_complete();
    return (eval.step() == 0 ? start : "step " + std::to_string(eval.step())) +
           ": validation loss " + fixed(eval.valid_loss(), 4) + " over " +
           std::to_string(eval.tokens()) + " tokens" +
           (eval.step() > 0 && eval.branch_ratio() > 0
                ? ", branch ratio " + fixed(eval.branch_ratio(), 5)
                : "");
  }
  if (event.has_advice()) {
    return "advice, " + event.advice().topic() + ": " + event.advice().evidence() +
           ". Try: " + event.advice().suggestion();
  }
  return event.message().empty() ? event.type() : event.message();
}

}  // namespace

void StatusLine::draw(const std::string& text) {
  if (!output_.terminal().interactive || output_.quiet()) return;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && now - last_ < kRedrawEvery) return;
  last_ = now;
  drawn_ = true;
  output_.err() << "\r\x1b[2K" << text << std::flush;
}

void StatusLine::clear() {
  if (drawn_) output_.err() << "\r\x1b[2K" << std::flush;
  drawn_ = false;
}

void UploadBar::show(int64_t sent, int64_t total) {
  const double ratio = total > 0 ? static_cast<double>(sent) / static_cast<double>(total) : 1.0;
  line_.draw("uploading " + bar(ratio, 24) + " " + human_bytes(static_cast<double>(sent)) + " of " +
             human_bytes(static_cast<double>(total)));
}

void JobProgress::show(const v1::FineTuningJob& snapshot) {
  const bool changed = snapshot.state() != job_.state() || snapshot.attempt() != job_.attempt();
  job_ = snapshot;
  total_steps_ = std::max(total_steps_, snapshot.progress().total_steps());
  if (changed) {
    std::string text = "job " + snapshot.id() + ": " + words(short_name(snapshot.state())) +
                       waiting_text(snapshot.waiting_reason());
    if (snapshot.has_queue_position())
      text += ", position " + std::to_string(snapshot.queue_position());
    if (snapshot.attempt() > 1) text += ", attempt " + std::to_string(snapshot.attempt());
    say(text);
  }
  redraw();
}

void JobProgress::show(const v1::FineTuningEvent& event) {
  if (event.has_training_start()) total_steps_ = event.training_start().total_steps();
  if (event.has_metrics()) {
    // An evaluation sends its step's point once more, by layer; the step has had its line.
    if (event.metrics().lambda_size() > 0) return;
    metrics_ = event.metrics();
    // Off a terminal about twenty lines a run say enough.
    const uint32_t stride = std::max(1u, total_steps_ / 20);
    if (!output_.terminal().interactive &&
        (metrics_.step() >= last_printed_step_ + stride || metrics_.step() == total_steps_)) {
      last_printed_step_ = metrics_.step();
      say("step " + std::to_string(metrics_.step()) + "/" + std::to_string(total_steps_) + "  " +
          figures(metrics_, branch_ratio_) + time_left());
    }
    return redraw();
  }
  if (event.has_eval_complete() && event.eval_complete().step() > 0)
    branch_ratio_ = event.eval_complete().branch_ratio();
  const bool goes_on = job_.model() != job_.base_model();
  const std::string text = sentence(event, goes_on ? "adapter gone on from" : "base");
  if (!text.empty()) say(event.level() == v1::FineTuningEvent::LEVEL_WARN ? "! " + text : text);
  redraw();
}

void JobProgress::say(const std::string& text) {
  line_.clear();
  output_.note("  " + text);
}

void JobProgress::redraw() {
  if (job_.state() != v1::JOB_STATE_RUNNING && job_.state() != v1::JOB_STATE_VALIDATING_FILES)
    return;
  if (total_steps_ == 0 || metrics_.step() == 0) {
    return line_.draw("  " + words(short_name(job_.phase())) + " …");
  }
  const double done = static_cast<double>(metrics_.step()) / total_steps_;
  line_.draw("  " + bar(done, 20) + " " + std::to_string(metrics_.step()) + "/" +
             std::to_string(total_steps_) + "  " + figures(metrics_, branch_ratio_) + time_left());
}

std::string JobProgress::time_left() const {
  if (metrics_.step() == 0 || metrics_.step() >= total_steps_) return "";
  if (metrics_.tokens_per_second() <= 0 || metrics_.trained_tokens() <= 0) return "";
  const double a_step = static_cast<double>(metrics_.trained_tokens()) / metrics_.step();
  const double steps = total_steps_ - metrics_.step();
  return "  " + human_seconds(a_step * steps / metrics_.tokens_per_second()) + " left";
}

}  // namespace dex::cli
