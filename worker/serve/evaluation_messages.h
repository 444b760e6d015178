#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dex/internal/v1/frames.pb.h"
#include "worker/evaluate/result.h"
#include "worker/serve/evaluation_run.h"

// Evaluations between messages and plain values. Pure; no tensor (performance.md §7).
namespace dex::serve {

// What an agent asked for. Throws EvaluationFailure of kind kEngine when the frame contradicts
// itself: a file or adapter that the spec names is not there, an unknown task.
EvaluationJob evaluation_job(const internal::v1::EvaluatorStart& start);

dex::v1::EvaluationRow row_message(const evaluate::ResultRow& row);
// Dims come in the order of their names: a map has no other.
evaluate::ResultRow row_of(const dex::v1::EvaluationRow& message);

// A task with its rows and notes. Rows of single heads and of pairs of heads become tables; where
// these have more than kMostHeadNumbers numbers, pairs are left out, which a note says. Of the
// others at most kMostRows (a grid of multi_needle: an evaluation has as many grids as tasks, 16),
// so that a reply stays below gRPC's limit, those with the fewest dims first; that some are left
// out is said in a note.
inline constexpr size_t kMostRows = 500;
inline constexpr size_t kMostHeadNumbers = 25'000;
dex::v1::EvaluationResult result_message(const EvaluateCommand& task, const std::string& file,
                                         const evaluate::Evaluation& evaluation);

// Pictures of head tables, {file name, SVG}: one a task and subject, with a grid and a histogram a
// metric. report_markdown shows them by these names.
std::vector<std::pair<std::string, std::string>> head_pictures(
    const dex::v1::EvaluationReport& report);

// All results for people: a heading and a table a task, heat maps of multi_needle, notes.
// `names`: what each task's file is called.
std::string report_markdown(const dex::v1::EvaluationReport& report,
                            std::span<const std::string> names);

}  // namespace dex::serve
