#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <vector>

#include "client/cli/study_report.h"

// What a study's report says beside quality and cost: the branch's effect (method.md §2.6), equal
// budgets, how the methods learned (§4.6), and what may be concluded (§2.7).
namespace dex::cli {

// `control`: the kvo_only run of the same seed; null: there is none, or it is `result` itself.
SeedFigures figures_of(const RunResult& result, const RunResult* control);

// The part of the Markdown report after its list of differences: a table, notes, a paragraph.
void write_findings(std::ostream& out, const StudyPlan& plan,
                    const std::vector<MethodSummary>& rows);

// The run's figures in its object of the JSON report: branch_effect, gradient_range,
// train_loss_average where there are such, steps_to_kvo_only where the two were compared (null:
// never). Nothing of a run that failed.
void add_figures(const RunResult& result, const std::vector<MethodSummary>& rows,
                 nlohmann::json& run);

}  // namespace dex::cli
