#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "services/data/statistics.h"

namespace dex::data {

// How long rows are, exactly: a count for each length that occurs. A file of 8 GiB has at most
// about 130 000 different lengths, so memory is bounded.
class LengthDistribution {
 public:
  void add(int64_t length) { ++counts_[length], ++rows_, total_ += length; }
  int64_t rows() const { return rows_; }
  int64_t total() const { return total_; }
  int64_t min() const { return counts_.empty() ? 0 : counts_.begin()->first; }
  int64_t max() const { return counts_.empty() ? 0 : counts_.rbegin()->first; }
  double mean() const {
    return rows_ == 0 ? 0 : static_cast<double>(total_) / static_cast<double>(rows_);
  }
  // The smallest length that at least `q` (0–1) of the rows do not exceed; 0 without rows.
  int64_t quantile(double q) const;
  struct Bucket {
    int64_t upper = 0;  // lengths in (previous upper, upper]; powers of two
    int64_t rows = 0;
  };
  std::vector<Bucket> histogram() const;

 private:
  std::map<int64_t, int64_t> counts_;
  int64_t rows_ = 0, total_ = 0;
};

// Rows left out for one reason.
struct Dropped {
  int64_t rows = 0;
  std::vector<int64_t> lines;  // the first 100
};

// What a file holds for one tokenizer, template and max_seq_length (api.md §5).
struct TokenStatistics {
  LengthDistribution lengths;    // of good rows in tokens, before cutting; dropped rows included
  int64_t rows_trained = 0;      // not dropped
  int64_t sequences = 0;         // what training gets: more than rows with CHUNK
  int64_t tokens = 0;            // of all sequences
  int64_t trainable_tokens = 0;  // with a weight above 0
  int64_t truncated_rows = 0;
  int64_t truncated_tokens = 0;
  int64_t truncated_trainable_tokens = 0;  // of truncated_tokens, those with a weight above 0
  std::vector<int64_t> truncated_lines;    // the first 100
  std::map<std::string, Dropped> dropped;  // by code
  NamedCounts trainable_by_tag;
  NamedCounts trainable_by_language;

  int64_t rows_dropped() const { return lengths.rows() - rows_trained; }
};

}  // namespace dex::data
