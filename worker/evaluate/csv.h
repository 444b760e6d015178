#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/evaluate/task_file.h"

namespace dex::evaluate {

struct CsvRow {
  int64_t line = 0;  // where it begins, from 1
  std::vector<std::string> fields;
};

// Comma-separated values as RFC 4180 has them: fields in double quotes may hold commas, line ends
// and doubled quotes. Blank lines are passed over. A quote that is never closed, or text after a
// closing one, is noted in `faults` with the row's line, and that row is left out.
std::vector<CsvRow> parse_csv(std::string_view text, FileFaults& faults);

}  // namespace dex::evaluate
