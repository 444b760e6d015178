#pragma once

#include <span>
#include <string>
#include <vector>

#include "services/statistics/item_rows.h"
#include "worker/evaluate/task.h"

namespace dex::evaluate {

// What one subject's run observed.
struct Observed {
  std::string subject;
  std::vector<Observation> observations;
};

// Rows of every metric, grouping, group and subject, in this order; groups as they first appear.
// The first of `observed` is the baseline that the others are compared with, item by item. A group
// that a subject has no observation of gives it no row.
std::vector<ResultRow> summarise(const std::string& task, std::span<const Metric> metrics,
                                 std::span<const Observed> observed,
                                 const EvaluationOptions& options);

// The numbers behind these rows, item by item and in the same order, but for the rows of single
// heads and of pairs of heads: what the rows of another evaluation can be compared with.
std::vector<statistics::ItemRow> item_rows(std::span<const Metric> metrics,
                                           std::span<const Observed> observed);

// Sentences on why rows of `summarise` say NO_DIFFERENCE though their figures differ: too few units
// for any verdict, or McNemar's test against an interval that leaves out 0. Empty: none does.
std::vector<std::string> verdict_notes(std::span<const ResultRow> rows, double confidence);

}  // namespace dex::evaluate
