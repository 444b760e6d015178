#pragma once

#include <string>
#include <vector>

#include "client/cli/output.h"
#include "dex/v1/evaluation.pb.h"

namespace dex::cli {

Table evaluation_table(const std::vector<v1::Evaluation>& evaluations);
// One evaluation without its rows: state, progress, subjects, tasks, error.
Table evaluation_details(const v1::Evaluation& evaluation);
// Rows as people read them: value with its interval, difference to the baseline with verdict.
Table row_table(const std::vector<v1::EvaluationRow>& rows);
// What lies between two evaluations: a heading a task, a line a row with both values, the
// difference and its verdict; notes.
std::string comparison_text(const v1::CompareEvaluationsResponse& comparison,
                            const Terminal& terminal);
// A sample as people read it, long texts cut to their ends: where it is from and its score beside
// the baseline's; below, a line each, what was asked, expected and said.
std::string sample_text(const v1::EvaluationSample& sample, const Terminal& terminal);
// Details, then for each task a heading, its rows and notes.
std::string evaluation_text(const v1::Evaluation& evaluation, const Terminal& terminal);

}  // namespace dex::cli
