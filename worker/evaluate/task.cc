#include "worker/evaluate/task.h"

#include <algorithm>

#include "worker/evaluate/summary.h"

namespace dex::evaluate {

Evaluation evaluate(Task& task, std::span<Subject* const> subjects,
                    const EvaluationOptions& options, const Hooks& hooks) {
  Evaluation out;
  Hooks watched = hooks;
  watched.note = [&](const std::string& text) {
    if (std::ranges::find(out.notes, text) == out.notes.end()) out.notes.push_back(text);
  };
  std::vector<Observed> observed;
  try {
    for (Subject* subject : subjects) {
      observed.push_back({subject->label(), {}});
      task.run(*subject, watched, observed.back().observations);
    }
  } catch (const Stopped&) {
    out.complete = false;
  }
  out.rows = summarise(task.name(), task.metrics(), observed, options);
  for (const std::string& text : verdict_notes(out.rows, options.confidence)) watched.note(text);
  if (!out.complete) return out;
  out.items = item_rows(task.metrics(), observed);
  out.files = task.files();
  return out;
}

}  // namespace dex::evaluate
