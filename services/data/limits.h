#pragma once

#include <cstdint>

namespace dex::data {

// What a data file may have at most (api.md §1). Tests shrink them.
struct Limits {
  int64_t line_bytes = 8LL << 20;
  int64_t file_bytes = 8LL << 30;
  int64_t rows = 10'000'000;
  int64_t minimum_rows = 10;  // good ones
};

}  // namespace dex::data
