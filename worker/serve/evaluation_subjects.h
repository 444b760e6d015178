#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "services/base/clock.h"
#include "worker/evaluate/subject.h"
#include "worker/serve/engine.h"
#include "worker/serve/engine_subject.h"
#include "worker/serve/serving_model.h"
#include "worker/serve/text_model.h"

namespace dex::serve {

// One thing to measure: the base, an adapter of it, or a whole model that was made of it (the
// artefact of methods full and diff, and of train full+dex).
struct SubjectSource {
  std::string label;
  std::filesystem::path adapter;  // its folder, or the model's; empty: the base
  std::string content_sha256;     // checked when set
  std::optional<double> dex_lambda_scale;
  // kInt8 or kInt4: in weights of so many bits, whatever dtype the others have.
  std::optional<Dtype> quantized;
};

// A base model or an adapter that can't be loaded: which of the two, for those who have to say
// whose fault it is.
class BrokenBase : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
class BrokenAdapter : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// A base model that is whole and has no tokenizer: no other copy of it can be evaluated either.
class NoTokenizer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Whole models that this machine, or its container, has not enough memory for: says how much they
// need, how much there is, and the way out.
class TooLittleMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The subjects of an evaluation. Base and adapters share one engine, so the base is in memory once,
// and once more in eight or four bits where subjects are measured so; a whole model has weights and
// an engine of its own, and the base's tokenizer and template, which are in its folder too. Loads
// everything in its constructor, once it has seen that it fits where there is more than the base.
// One thread.
class EvaluationSubjects {
 public:
  struct Options {
    std::filesystem::path model;
    std::string weights_sha256;  // checked when set
    std::string dtype;           // as parse_dtype takes it
    int threads = 0;             // 0: all cores
    int64_t positions = 0;       // beyond the model's own; 0: its own
    std::vector<SubjectSource> subjects;
  };
  // Throws TooLittleMemory, BrokenBase, NoTokenizer, BrokenAdapter.
  EvaluationSubjects(const Options& options, const base::Clock& clock);  // clock outlives this

  [[nodiscard]] const std::vector<evaluate::Subject*>& list() const { return list_; }
  // As EngineSubject's, of all of them.
  void watch_steps(const std::function<void()>& after_step) {
    for (const auto& subject : subjects_) subject->watch_steps(after_step);
  }
  // As EngineSubject's, of all of them; and of one, by its place in list().
  void keep_extremes() {
    for (const auto& subject : subjects_) subject->keep_extremes();
  }
  [[nodiscard]] const std::optional<ActivationExtremes>& extremes(size_t subject) const {
    return subjects_[subject]->extremes();
  }

 private:
  // A model and what answers with it.
  struct Answering {
    std::shared_ptr<const ServingModel> model;
    std::unique_ptr<Engine> engine;
  };

  void load_base(const Options& options, const base::Clock& clock);
  [[nodiscard]] Answering answering(const std::filesystem::path& folder, Dtype dtype,
                                    const std::string& weights_sha256, const Options& options,
                                    const base::Clock& clock) const;
  [[nodiscard]] const std::string& base_sha256() const;
  void add_whole(const SubjectSource& source, const Options& options, const base::Clock& clock);
  std::shared_ptr<const ServingAdapter> load_adapter(const SubjectSource& source,
                                                     const ServingModel& of) const;

  TextModel text_;
  // Each there where a subject needs it, by its SubjectSource::quantized; one of them always.
  std::map<std::optional<Dtype>, Answering> bases_;
  std::vector<Answering> wholes_;
  std::vector<std::unique_ptr<EngineSubject>> subjects_;
  std::vector<evaluate::Subject*> list_;
};

}  // namespace dex::serve
