#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
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

// One thing to measure: the base, or an adapter of it.
struct SubjectSource {
  std::string label;
  std::filesystem::path adapter;  // its folder; empty: the base
  std::string content_sha256;     // checked when set
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

// The subjects of an evaluation on one engine: the base is in memory once. Loads everything in its
// constructor. One thread.
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
  // Throws BrokenBase, NoTokenizer, BrokenAdapter.
  EvaluationSubjects(const Options& options, const base::Clock& clock);  // clock outlives this

  [[nodiscard]] const std::vector<evaluate::Subject*>& list() const { return list_; }
  // As EngineSubject's, of all of them.
  void watch_steps(const std::function<void()>& after_step) {
    for (const auto& subject : subjects_) subject->watch_steps(after_step);
  }

 private:
  void load_base(const Options& options, const base::Clock& clock);
  std::shared_ptr<const ServingAdapter> load_adapter(const SubjectSource& source) const;

  TextModel text_;
  std::shared_ptr<const ServingModel> model_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<EngineSubject>> subjects_;
  std::vector<evaluate::Subject*> list_;
};

}  // namespace dex::serve
