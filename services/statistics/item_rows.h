#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/statistics/paired.h"

// The numbers behind an evaluation's rows, item by item, as a file: with it what two evaluations
// measured can be compared in pairs long after their engines have gone.
namespace dex::statistics {

// One row of one subject: a metric over everything, or over a group.
struct ItemRow {
  std::string metric;
  std::string subject;
  std::map<std::string, std::string> dims;
  MetricRule rule;
  std::vector<int64_t> items;   // ascending, each once; equal for the same item of every subject
  std::vector<Number> numbers;  // as many
};

// Those of one task.
struct TaskItems {
  std::string task;
  std::vector<std::string> files;  // SHA-256 of what it read, in the order of proto/task_files.h
  std::vector<ItemRow> rows;
  int64_t left_out = 0;  // rows that the file had no room for
};

// JSON Lines: {"task", "files", "left_out"}, then a line a row, {"metric", "subject", "dims",
// "rule", "items", "values", "weights"}; without weights, where all are 1. Numbers come back with
// every bit; one that is not finite comes back as NaN. Rows over fewer dims go first into the
// `most` bytes that it may have, and what does not fit is left out.
std::string items_text(const TaskItems& items, size_t most);
// DATA_LOSS ARTIFACT_CORRUPT for anything else.
base::Result<TaskItems> parse_items(std::string_view text);

// The row of that name; nullptr: there is none.
const ItemRow* find_row(const TaskItems& items, const std::string& metric,
                        const std::map<std::string, std::string>& dims, const std::string& subject);

// The numbers of the items that two rows have in common.
struct Pairs {
  std::vector<Number> base, subject;
  bool complete = true;  // neither has an item that the other lacks
};
Pairs pairs_of(const ItemRow& base, const ItemRow& subject);

}  // namespace dex::statistics
