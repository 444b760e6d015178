#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/study_plan.h"
#include "client/cli/study_statistics.h"

namespace dex::cli {

// A row that an evaluation has of a run's result and of its base, over the same items.
struct TaskFigure {
  size_t task = 0;     // in StudyPlan::tasks
  std::string metric;  // with its group where it is over one: "acc", "accuracy [shots 4]"
  double base = 0, value = 0;
  int64_t n = 0;  // items
};

// What is known of a run once its job has ended.
struct RunResult {
  StudyRun run;
  std::string job, adapter;
  std::string failure;             // empty: it succeeded
  double base_loss = 0, loss = 0;  // nats a token, held out: base, published weights
  v1::BranchEffect branch;         // as the job has it; not applicable: no branch
  std::optional<double> gradient_range;
  std::vector<double> train_losses;  // as LossCurve::losses
  int64_t trained_tokens = 0, trained_parameters = 0, added_parameters = 0;
  int64_t peak_memory_bytes = 0, artefact_bytes = 0;
  double tokens_per_second = 0;  // of training
  Decoding decoding;
  // Decoding time a token, adapter / base, one a pair: with everything inside the base's weights,
  // and with what was added computed beside them.
  std::vector<double> merged, unmerged;
  std::string not_served;  // why there are none
  std::string rates;       // "learning_rate 5e-05, …"
  std::string evaluation;  // by the plan's tasks; "": none
  std::vector<TaskFigure> tasks;
  std::string not_measured;  // why there are none
};

// What a run showed beside its loss (method.md §2.6, §4.6).
struct SeedFigures {
  int64_t trained_tokens = 0;
  v1::BranchEffect branch;
  std::optional<double> gradient_range;
  bool compared = false;             // with kvo_only's losses of the same seed: both are known
  std::optional<int64_t> steps;      // to kvo_only's last average loss; none: never
  std::optional<double> train_loss;  // the last average of its own
};

// One metric of a task, over a method's seeds.
struct TaskSummary {
  size_t task = 0;
  std::string metric;
  Interval value;
  Interval against_base;              // value − the base's, paired by seed
  Interval against_control;           // value − kvo_only's, likewise; n = 0 without a control
  double base_min = 0, base_max = 0;  // of the base, over seeds
};

// NaN: not measured.
struct Spread {
  double median = 0, low = 0, high = 0;
};

// One method's row of the table.
struct MethodSummary {
  std::string method;
  Interval loss;              // over seeds
  Interval against_base;      // loss − base loss, paired by seed
  Interval against_control;   // loss − kvo_only's, paired by seed; n = 0 without a control
  std::string noise_partner;  // of a sign variant: the method of the other sign
  Interval against_partner;   // loss − that one's, paired by seed: noise
  double base_loss_min = 0, base_loss_max = 0;  // of the base, over seeds
  std::map<uint64_t, SeedFigures> by_seed;      // of runs that succeeded
  int64_t trained_parameters = 0, added_parameters = 0, trained_tokens = 0;
  int64_t peak_memory_bytes = 0, artefact_bytes = 0;  // the largest
  double tokens_per_second = 0;                       // median over seeds
  Spread merged, unmerged;                            // of decoding times
  std::vector<TaskSummary> tasks;                     // in the plan's order
  bool base_shape = false;         // a whole model of the base's shape: it decodes as the base does
  std::vector<std::string> notes;  // failed runs, why not served
};

// Rows in the plan's order of methods; methods without a successful run have only notes.
std::vector<MethodSummary> summarise(const StudyPlan& plan, const std::vector<RunResult>& results);

// The picture that the report shows from beside it, once a run has succeeded: loss_svg.
inline constexpr const char* kLossPicture = "loss.svg";

// The report for people. `command` is what made it, `data` names the data set.
std::string markdown(const std::string& data, const std::string& command, const StudyPlan& plan,
                     const std::vector<MethodSummary>& rows);
nlohmann::json to_json(const std::string& data, const std::string& command, const StudyPlan& plan,
                       const std::vector<MethodSummary>& rows,
                       const std::vector<RunResult>& results);
// Held-out loss by method with its interval and each seed's value, as a picture that stands alone.
std::string loss_svg(const std::vector<MethodSummary>& rows, const std::vector<RunResult>& results);

}  // namespace dex::cli
