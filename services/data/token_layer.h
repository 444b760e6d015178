#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/data/findings.h"
#include "services/data/row.h"
#include "services/data/token_statistics.h"
#include "services/text/row_encoder.h"

namespace dex::data {

// The token layer of api.md §5: encodes good rows as training does, reports what only the tokenizer
// and the template can tell, and counts. Not thread-safe.
class TokenLayer {
 public:
  // All three outlive this object; `tokenizer` may be null (rows of ids).
  TokenLayer(const text::RowEncoder& encoder, const text::Tokenizer* tokenizer, Findings& findings);

  // What training gets of the row; empty if it is dropped (then there is a finding).
  std::vector<text::EncodedRow> check(const Row& row);
  // After the last row. `header_sha256`: of a tokens file's header line, or empty; another
  // tokenizer's is the error tokenizer_mismatch. Reports rows that are far longer than the rest.
  void finish(const std::string& header_sha256);

  const TokenStatistics& statistics() const { return statistics_; }

 private:
  void drop(const Row& row, const text::EncodedRow& encoded);
  void note_length(const Row& row, int64_t tokens);

  struct LongRow {
    int64_t tokens, line, byte_offset;
  };

  const text::RowEncoder& encoder_;
  const text::Tokenizer* tokenizer_;
  Findings& findings_;
  TokenStatistics statistics_;
  std::vector<LongRow> longest_;  // at most 20, a heap with the shortest on top
};

}  // namespace dex::data
