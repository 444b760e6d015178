#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "services/data/findings.h"
#include "services/data/row.h"
#include "services/data/statistics.h"
#include "services/data/token_statistics.h"

namespace dex::data {

// Whether a file suits the preset that a job takes: the preset codes of api.md §5. They are
// warnings about the file as a whole and drop nothing.
//   multilingual · preset_language_share: more than 90 % of the rows that carry `language` carry
//     the same, or no row carries it
//   long_text · preset_short_rows: half of the rows have fewer than max_seq_length / 2 tokens
//   code · preset_not_code: fewer than a third of the rows look like code (code_text.h), judged by
//     what is trained: completions, assistant messages, whole texts. Rows of ids say nothing.
// Not thread-safe.
class PresetChecks {
 public:
  // `preset` with or without its version ("code@1"); any other, or none, has nothing to check.
  explicit PresetChecks(std::string_view preset);

  void add(const Row& row);  // a good row
  // After the last row; `max_seq_length` 0: none.
  void finish(const Statistics& rows, const TokenStatistics& tokens, int32_t max_seq_length,
              Findings& findings) const;

 private:
  std::string preset_;
  int64_t texts_ = 0, codes_ = 0;  // rows with text; those of them that look like code
};

}  // namespace dex::data
