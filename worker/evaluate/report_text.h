#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "worker/evaluate/task.h"

// How an evaluation is shown.
namespace dex::evaluate {

// The rows as a table of aligned columns, numbers to four digits behind the point.
std::string rows_as_table(std::span<const ResultRow> rows);

// The same as a table of Markdown.
std::string rows_as_markdown(std::span<const ResultRow> rows);

// {"task", "complete", "seed", "rows": [{task, subject, metric, dims, value, low, high, confidence,
// interval, n, delta?, delta_low?, delta_high?, verdict?}], "notes"}: rows with the names of api.md
// §2; low and high are null where interval is NONE.
std::string evaluation_as_json(const std::string& task, const Evaluation& evaluation,
                               uint64_t seed);

// One line of JSON: task, subject, item, line, dims, prompt, expected, output, score,
// baseline_score, logprobs, attention, named as EvaluationSample's fields. Absent: what is empty.
std::string sample_as_json(const Sample& sample);

// The text if it has at most `most` bytes, else three quarters of that from its front and one from
// its end, where prompts ask their question, and " … " between. Cuts between characters.
std::string shortened(const std::string& text, size_t most);

}  // namespace dex::evaluate
