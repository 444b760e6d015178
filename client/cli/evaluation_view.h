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
// Samples as people read them, long texts cut: where it is from, its score beside the baseline's,
// what was asked, expected and said.
Table sample_table(const std::vector<v1::EvaluationSample>& samples);
// Details, then for each task a heading, its rows and notes.
std::string evaluation_text(const v1::Evaluation& evaluation, const Terminal& terminal);

}  // namespace dex::cli
