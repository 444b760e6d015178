#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/job_spec.h"
#include "dex/v1/evaluation.pb.h"

namespace dex::cli {

// The control of method.md §2.7 that every other method is compared with.
inline constexpr const char* kControl = "kvo_only";

// What every run's result is measured by beside its held-out loss.
struct StudyTask {
  std::string name;         // as it was written: "multiple_choice(mmlu.csv, samples=500)"
  v1::EvaluationTask task;  // with ids in place of paths
};

// A comparison of methods on the same footing: every method gets the same data, the same number of
// updates of the same size, and the same seeds, so that a seed's data order is the same for all.
struct StudyPlan {
  SpecFlags common;             // what all runs share; method, preset and seed come from below
  std::string preset = "auto";  // of dex, its variants and its control kvo_only
  // "lora", or a variant of dex that differs from its preset in one field: "dex:" and a value of
  // dex.train ("dex:dex_only") or of dex.sign ("dex:plus").
  std::vector<std::string> methods;
  std::vector<uint64_t> seeds;
  std::vector<StudyTask> tasks;
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
  // A whole model, which nothing serves before an operator has listed it: not measured. Where it is
  // merged (full, full+dex) it has the base's shape and so its cost.
  bool whole = false;
};
// `effective`: the job's spec with every value filled in.
Decoding decoding_of(const v1::FineTuningJobSpec& effective);

// The plan's tasks on the base, and on a run's result beside it ("": none), in this order.
v1::EvaluationSpec evaluation_of(const StudyPlan& plan, const std::string& adapter);

// The same for the same job, or evaluation: a study that is started again finds its jobs instead of
// making new ones. At most 64 characters. `spec`: of either.
std::string request_id_of(const google::protobuf::MessageLite& spec);

// The request id of the job that takes the place of `job`, which the request id before had made.
std::string request_id_after(const std::string& request_id, const std::string& job);

// Of a run's job when the same command comes again: whether it has ended in a way that a new job
// need not, cancelled or failed by no fault of the user's.
bool is_tried_again(const v1::FineTuningJob& job);
bool is_tried_again(const v1::Evaluation& evaluation);

// Why a job has no result, and whether the same command makes a new one; "": it has succeeded.
std::string failure_of(const v1::FineTuningJob& job);
std::string failure_of(const v1::Evaluation& evaluation);

// "1,2,3" or "1-5" → seeds; "dex,dex:plus,lora" → methods, each one that exists, once.
base::Result<std::vector<uint64_t>> parse_seeds(const std::string& text);
base::Result<std::vector<std::string>> parse_methods(const std::string& text);

// "dex:plus" → "dex": the member of the spec's oneof.
std::string spec_method(const std::string& method);
// "dex:plus" and "dex:minus", which are the same class of functions.
bool is_sign_variant(const std::string& method);
// The method that `method` is the other sign of, so that a difference is noise: dex, else the
// other variant. "": there is none among them, or it is no sign variant.
std::string noise_partner(const std::vector<std::string>& methods, const std::string& method);

// Adds kvo_only at the end where dex is compared without it; true: it was.
bool add_control(std::vector<std::string>& methods);

// Methods with their effective specs, for one seed. INVALID_FIELD names two that draw their rows by
// other groups or weights (Hyperparameters.group_by): what is compared would be the rows, too.
base::Status check_same_rows(
    const std::vector<std::pair<std::string, v1::FineTuningJobSpec>>& effective);

// Methods with their effective specs, for one seed. INVALID_FIELD names two that are the same: a
// variant that asks for what the preset does anyway would be compared with itself.
base::Status check_distinct(
    const std::vector<std::pair<std::string, v1::FineTuningJobSpec>>& effective);

}  // namespace dex::cli
