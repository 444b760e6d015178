#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "services/statistics/item_rows.h"
#include "worker/evaluate/result.h"
#include "worker/evaluate/subject.h"

namespace dex::evaluate {

// How a task's observations become rows. A row's value is Σ value / Σ weight of the observations.
struct Metric {
  std::string name;
  // kWilson: values count successes out of `weight`, and items are the trials. kBootstrap: over
  // items, whatever their values are.
  IntervalKind interval = IntervalKind::kWilson;
  bool lower_is_better = false;
  bool exponential = false;  // the row shows exp of it: perplexity
  // One row for each combination of these dims' values; an empty list is the row over everything.
  std::vector<std::vector<std::string>> groupings = {{}};
  bool judged = true;  // false: neither way is better, a real difference is only DIFFERENT
};

// How whoever runs a task follows it. Called in the thread that runs it; an empty function is not
// called.
struct Hooks {
  std::stop_token stop;
  std::function<void(const std::string& subject, int64_t done, int64_t total)> progress;
  std::function<void(const Sample&)> sample;
  // A sentence that belongs beside the numbers. The same one may come once for each subject.
  std::function<void(const std::string&)> note;

  void report(const Subject& subject, int64_t done, int64_t total) const {
    if (progress) progress(subject.label(), done, total);
  }
  void say(const std::string& text) const {
    if (note) note(text);
  }
};

// Something that a task has written for others: a plain file name and its content.
struct ExportedFile {
  std::string name, content;
};

// One kind of evaluation with its data and settings. Runs on one subject after the other and gives
// each the same samples, so that they can be compared in pairs.
class Task {
 public:
  virtual ~Task() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::vector<Metric> metrics() const = 0;
  // Appends to `out` as it goes, so that what was observed survives a throw. What can be refused
  // (too long for the model, needles that do not fit) is refused before anything is computed, as
  // std::runtime_error. Throws Stopped.
  virtual void run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) = 0;
  // Of the subjects that ran to their end.
  [[nodiscard]] virtual std::vector<ExportedFile> files() const { return {}; }
};

struct EvaluationOptions {
  double confidence = 0.95;
  uint64_t seed = 0;
};

struct Evaluation {
  bool complete = true;  // false: stopped; the rows are over what was observed until then
  std::vector<ResultRow> rows;
  std::vector<statistics::ItemRow> items;  // summary.h, item_rows(); none where it was stopped
  std::vector<std::string> notes;          // each once
  std::vector<ExportedFile> files;         // Task::files(); none where it was stopped
};

// Runs `task` on every subject, the first being the baseline, and sums up. When it is stopped, the
// rows compare each subject with the baseline on the samples that both have.
Evaluation evaluate(Task& task, std::span<Subject* const> subjects,
                    const EvaluationOptions& options, const Hooks& hooks);

}  // namespace dex::evaluate
