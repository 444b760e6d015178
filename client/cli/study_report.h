#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "client/cli/study_plan.h"
#include "client/cli/study_statistics.h"

namespace dex::cli {

// What is known of a run once its job has ended.
struct RunResult {
  StudyRun run;
  std::string job, adapter;
  std::string failure;             // empty: it succeeded
  double base_loss = 0, loss = 0;  // nats a token, held out: base, published weights
  int64_t trained_tokens = 0, trained_parameters = 0, added_parameters = 0;
  int64_t peak_memory_bytes = 0, artefact_bytes = 0;
  double tokens_per_second = 0;  // of training
  Decoding decoding;
  // Decoding time a token, adapter / base, one a pair: with everything inside the base's weights,
  // and with what was added computed beside them.
  std::vector<double> merged, unmerged;
  std::string not_served;  // why there are none
};

// NaN: not measured.
struct Spread {
  double median = 0, low = 0, high = 0;
};

// One method's row of the table.
struct MethodSummary {
  std::string method;
  Interval loss;             // over seeds
  Interval against_base;     // loss − base loss, paired by seed
  Interval against_control;  // loss − kvo_only's, paired by seed; n = 0 without a control
  int64_t trained_parameters = 0, added_parameters = 0, trained_tokens = 0;
  int64_t peak_memory_bytes = 0, artefact_bytes = 0;  // the largest
  double tokens_per_second = 0;                       // median over seeds
  Spread merged, unmerged;                            // of decoding times
  std::vector<std::string> notes;                     // failed runs, why not served
};

// Rows in the plan's order of methods; methods without a successful run have only notes.
std::vector<MethodSummary> summarise(const StudyPlan& plan, const std::vector<RunResult>& results);

// The report for people. `command` is what made it, `data` names the data set.
std::string markdown(const std::string& data, const std::string& command, const StudyPlan& plan,
                     const std::vector<MethodSummary>& rows);
nlohmann::json to_json(const std::string& data, const std::string& command, const StudyPlan& plan,
                       const std::vector<MethodSummary>& rows,
                       const std::vector<RunResult>& results);
// Held-out loss by method with its interval and each seed's value, as a picture that stands alone.
std::string loss_svg(const std::vector<MethodSummary>& rows, const std::vector<RunResult>& results);

}  // namespace dex::cli
