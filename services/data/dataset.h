#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/data/findings.h"
#include "services/data/reader.h"
#include "services/data/token_statistics.h"
#include "services/text/row_encoder.h"

namespace dex::data {

// One sequence to train on, and where it came from.
struct Example {
  text::EncodedRow encoded;
  int64_t line = 0;  // of its row; with CHUNK several examples share it
  std::string tag, language;
  uint64_t content_hash = 0;  // of its row; split.h
};

// A data file as training sees it.
struct EncodedDataset {
  std::vector<Example> examples;  // in the order of the file
  text::RowFormat format = text::RowFormat::kText;
  TokenStatistics tokens;
  Statistics rows;
  // Rows that were left out, by the code of their first fault: what the token layer drops, and what
  // the structure layer refuses (its first 500 faults).
  std::map<std::string, Dropped> dropped;
  std::vector<Finding> findings;  // both layers, at most 1000
  std::map<std::string, int64_t, std::less<>> finding_counts;
};

struct LoadOptions {
  text::RowEncoder::Options encoder;
  double skip_budget_ratio = 0.01;  // of all rows, what may be left out (api.md §3)
  int64_t max_tokens = 1LL << 30;   // of all sequences together; 8 bytes of memory each
  bool keep_examples = true;        // false: only count, as an estimate does
  std::string preset = {};          // whose warnings are wanted (preset_checks.h); empty: none
};

// Reads and encodes the whole file. FAILED_PRECONDITION FILE_INVALID, with the codes and their
// lines and the first fault in words, if both layers together leave out more rows than the budget,
// if nothing is left, if the ids belong to another tokenizer, or if the file as a whole is not what
// it should be (cut off, no JSONL …); RESOURCE_EXHAUSTED above max_tokens; CANCELLED if stopped.
// A file of a single row is accepted: how many rows are enough was judged when it was uploaded.
// `tokenizer` and `chat_template` may be null where the format does not need them. Blocks on the
// disk; thread-safe.
base::Result<EncodedDataset> load_encoded(const std::filesystem::path& path,
                                          const text::Tokenizer* tokenizer,
                                          const text::ChatTemplate* chat_template,
                                          const LoadOptions& options, std::stop_token stop = {});

}  // namespace dex::data
