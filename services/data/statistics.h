#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "services/data/row.h"

namespace dex::data {

// Counts by a name that users choose. Keeps at most 10 000 names, so memory is bounded; rows of
// later names count as "(other)".
class NamedCounts {
 public:
  void add(const std::string& name, int64_t count);
  const std::map<std::string, int64_t>& all() const { return counts_; }
  // The `limit` largest.
  std::map<std::string, int64_t> largest(size_t limit) const;

 private:
  std::map<std::string, int64_t> counts_;
};

// What a file holds, without a tokenizer. Rows without a tag or language are not in the counts by
// name.
struct Statistics {
  int64_t bytes = 0;  // of the file
  int64_t rows_good = 0;
  int64_t rows_skipped = 0;
  int64_t duplicate_rows = 0;  // good rows equal to an earlier one
  int64_t text_bytes = 0;      // of the good rows' texts
  int64_t characters = 0;      // of the same
  int64_t tokens_guess =
      0;  // text_bytes / 4; of rows of ids: their ids. A guess until a tokenizer counts
  int64_t longest_row_bytes = 0;  // text
  int64_t messages = 0;           // of chats
  int64_t most_messages = 0;      // in one chat
  NamedCounts rows_by_tag;
  NamedCounts rows_by_language;

  void add(const Row& row);  // a good row
};

}  // namespace dex::data
