#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/job_spec.h"

namespace dex::cli {

// A comparison of methods on the same footing: every method gets the same data, the same number of
// updates of the same size, and the same seeds, so that a seed's data order is the same for all.
struct StudyPlan {
  SpecFlags common;             // what all runs share; method, preset and seed come from below
  std::string preset = "auto";  // of dex
  std::vector<std::string> methods;
  std::vector<uint64_t> seeds;
};

struct StudyRun {
  std::string method;
  uint64_t seed = 0;
  [[nodiscard]] std::string name() const { return method + "/seed-" + std::to_string(seed); }
};

// Seed by seed, so that a study that is broken off has whole comparisons.
std::vector<StudyRun> runs_of(const StudyPlan& plan);

// The job of a run. Errors as make_spec; also when the number of updates is not given, since then
// the budgets would be chosen by each method alone.
base::Result<v1::FineTuningJobSpec> spec_of(const StudyPlan& plan, const StudyRun& run);

// The scale of λ at which unmerged branches are measured: any below 1 takes the same time.
inline constexpr double kBranchScale = 0.5;

// How decoding with a run's adapter is measured (worker/serve/serving_model.h).
struct Decoding {
  // As it is served, all that was trained is inside weights of the base's shape.
  bool merged = false;
  // A generation at another scale of λ takes the branch out of them, so both can be measured.
  bool scaled = false;
};
// `effective`: the job's spec with every value filled in.
Decoding decoding_of(const v1::FineTuningJobSpec& effective);

// The same for the same job: a study that is started again finds its jobs instead of making new
// ones. At most 64 characters.
std::string request_id_of(const v1::FineTuningJobSpec& spec);

// "1,2,3" or "1-5" → seeds; "dex,lora" → methods, each one that exists, once.
base::Result<std::vector<uint64_t>> parse_seeds(const std::string& text);
base::Result<std::vector<std::string>> parse_methods(const std::string& text);

}  // namespace dex::cli
