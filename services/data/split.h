#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dex::data {

// The validation split of api.md §3 and §5. A row's place is a number in [0, 1) from its content
// and the seed; rows below the ratio are held out. So equal rows fall on one side, a row never
// moves because others are added, and every tag and language is held out in proportion (as chance
// has it).
double split_position(uint64_t content_hash, uint64_t seed);

// `auto` of validation_split: 0 with a validation file or below 50 rows, else min(5 %, 2000 rows),
// at least 10 rows.
double auto_split_ratio(int64_t rows, bool has_validation_file);

// True = held out, one entry a row. With a ratio above 0, each side gets at least `minimum_rows`
// (fewer only if there are not twice as many different rows), taken in order of position. `ratio`
// 0–0.5.
std::vector<bool> split_rows(std::span<const uint64_t> content_hashes, uint64_t seed, double ratio,
                             int64_t minimum_rows = 10);

}  // namespace dex::data
