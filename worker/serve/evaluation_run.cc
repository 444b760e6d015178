#include "worker/serve/evaluation_run.h"

#include <algorithm>
#include <memory>

namespace dex::serve {
namespace {

using Kind = EvaluationFailure::Kind;
using Tasks = std::vector<std::unique_ptr<evaluate::Task>>;

std::string with_names(std::string text, const EvaluationJob& job) {
  for (const auto& [path, name] : job.shown_paths) {
    for (size_t at = 0; (at = text.find(path, at)) != std::string::npos; at += name.size())
      text.replace(at, path.size(), name);
  }
  return text;
}

// Tasks name their options as dex-engine's command line does; a spec has fields: n_shot for
// --n-shot.
std::string with_fields(std::string text) {
  const auto starts_option = [&](size_t at) {
    return (at == 0 || text[at - 1] == ' ') && at + 2 < text.size() && text[at + 2] >= 'a' &&
           text[at + 2] <= 'z';
  };
  for (size_t at = 0; (at = text.find("--", at)) != std::string::npos;) {
    if (!starts_option(at)) {
      at += 2;
      continue;
    }
    text.erase(at, 2);
    for (; at < text.size() && ((text[at] >= 'a' && text[at] <= 'z') || text[at] == '-'); ++at) {
      if (text[at] == '-') text[at] = '_';
    }
  }
  return text;
}

std::string for_user(const std::exception& error, const EvaluationJob& job) {
  return with_names(with_fields(error.what()), job);
}

// Empty where a task is done already.
Tasks read_tasks(const EvaluationJob& job, size_t first) {
  Tasks tasks(job.tasks.size());
  for (size_t i = first; i < tasks.size(); ++i) {
    try {
      tasks[i] = make_task(job.tasks[i]);
    } catch (const std::runtime_error& error) {
      throw EvaluationFailure(Kind::kFile, for_user(error, job), job.task_fields[i]);
    }
  }
  return tasks;
}

std::unique_ptr<EvaluationSubjects> load_subjects(const EvaluationJob& job,
                                                  const base::Clock& clock) {
  EvaluationSubjects::Options options = job.subjects;
  for (const EvaluateCommand& task : job.tasks)
    options.positions = std::max(options.positions, positions_for(task));
  try {
    return std::make_unique<EvaluationSubjects>(options, clock);
  } catch (const BrokenAdapter& error) {
    throw EvaluationFailure(Kind::kAdapter, with_names(error.what(), job), "subjects");
  } catch (const NoTokenizer& error) {
    throw EvaluationFailure(Kind::kTask, with_fields(error.what()), "subjects[0].model");
  } catch (const TooLittleMemory& error) {
    throw EvaluationFailure(Kind::kMemory, error.what(), "subjects");
  } catch (const BrokenBase& error) {
    throw EvaluationFailure(Kind::kBase, error.what(), "");
  }
}

// Which subject a label is, for the share of a task that is done.
size_t index_of(const std::string& label, const std::vector<SubjectSource>& subjects) {
  for (size_t i = 0; i < subjects.size(); ++i) {
    if (subjects[i].label == label) return i;
  }
  return 0;
}

// Where the run stands, for the session. Tasks say it between their batches, which is often enough
// for a progress bar; a batch of long texts on a slow machine outlasts every stall limit, so it is
// said again from inside.
class Standing {
 public:
  Standing(EvaluationSession& session, const base::Clock& clock)
      : session_(session), clock_(clock) {}

  void reached(EvaluationPhase phase, size_t done, double ratio) {
    phase_ = phase;
    done_ = done;
    ratio_ = std::max(ratio_, ratio);
    say();
  }
  // After a step of the computation.
  void still_here() {
    if (clock_.steady_ms() - said_ms_ >= kSayAgain_ms) say();
  }

 private:
  static constexpr int64_t kSayAgain_ms = 1000;

  void say() {
    said_ms_ = clock_.steady_ms();
    session_.progress(phase_, done_, ratio_);
  }

  EvaluationSession& session_;
  const base::Clock& clock_;
  EvaluationPhase phase_ = EvaluationPhase::kLoadingDataset;
  size_t done_ = 0;
  double ratio_ = 0;
  int64_t said_ms_ = 0;
};

}  // namespace

void run_evaluation_job(const EvaluationJob& job, size_t first, EvaluationSession& session,
                        const base::Clock& clock) {
  if (first >= job.tasks.size()) return;  // an earlier attempt only failed to publish
  const auto all = static_cast<double>(job.tasks.size());
  const auto before = [&](size_t task) { return static_cast<double>(task) / all; };
  Standing standing(session, clock);
  standing.reached(EvaluationPhase::kLoadingDataset, first, before(first));
  const Tasks tasks = read_tasks(job, first);
  if (session.stop().stop_requested()) throw evaluate::Stopped();
  standing.reached(EvaluationPhase::kLoadingModel, first, before(first));
  const auto subjects = load_subjects(job, clock);
  subjects->watch_steps([&] { standing.still_here(); });
  const auto subject_count = static_cast<double>(job.subjects.subjects.size());
  for (size_t i = first; i < tasks.size(); ++i) {
    standing.reached(EvaluationPhase::kEvaluating, i, before(i));
    evaluate::Hooks hooks;
    hooks.stop = session.stop();
    hooks.progress = [&](const std::string& subject, int64_t done, int64_t total) {
      const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0;
      const auto ended = static_cast<double>(index_of(subject, job.subjects.subjects));
      standing.reached(EvaluationPhase::kEvaluating, i,
                       before(i) + (ended + share) / subject_count / all);
    };
    hooks.sample = [&](const evaluate::Sample& sample) { session.sample(sample); };
    evaluate::Evaluation evaluation;
    try {
      evaluation =
          evaluate::evaluate(*tasks[i], subjects->list(), {job.confidence, job.seed}, hooks);
    } catch (const EngineFailure& error) {
      throw EvaluationFailure(Kind::kEngine, error.what(), job.task_fields[i]);
    } catch (const std::runtime_error& error) {
      // A task refuses what can't be before it computes anything (worker/evaluate/task.h).
      throw EvaluationFailure(Kind::kTask, for_user(error, job), job.task_fields[i]);
    }
    if (!evaluation.complete) throw evaluate::Stopped();
    session.finished(i, evaluation);
  }
}

}  // namespace dex::serve
