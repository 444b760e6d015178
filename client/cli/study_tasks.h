#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "client/cli/study_report.h"
#include "dex/v1/evaluation.pb.h"

// A study's quality by tasks of EvaluationService, beside its held-out loss.
namespace dex::cli {

// Of an evaluation_of a run's result, task by task: the rows over everything, or of a task that has
// none (icl), those over its fewest groups.
std::vector<TaskFigure> task_figures(const v1::Evaluation& evaluation);

// A method's, over the seeds that have them, in the order of its first run.
std::vector<TaskSummary> summarise_tasks(const StudyPlan& plan,
                                         const std::vector<RunResult>& results,
                                         const std::string& method);

// The part of the Markdown report: a table a task and what it means; nothing without tasks.
void write_tasks(std::ostream& out, const StudyPlan& plan, const std::vector<MethodSummary>& rows);

// A run's figures, and a method's, as "tasks" in its object of the JSON report; nothing without
// tasks.
void add_tasks(const StudyPlan& plan, const RunResult& result, nlohmann::json& run);
void add_tasks(const StudyPlan& plan, const MethodSummary& row, nlohmann::json& method);

}  // namespace dex::cli
