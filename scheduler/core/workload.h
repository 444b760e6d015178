#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "dex/v1/files.pb.h"
#include "dex/v1/finetuning.pb.h"

namespace dex::core {

// What is known of a data file before a tokenizer has seen it.
struct DataFacts {
  dex::v1::FileFormat format = dex::v1::FILE_FORMAT_TEXT;
  int64_t rows = 0;
  int64_t tokens = 0;              // a guess: bytes / 4
  int64_t longest_row_tokens = 0;  // likewise
  // Rows that carry each, the largest 100; empty: none does.
  std::map<std::string, int64_t> rows_by_tag = {}, rows_by_language = {};
};

DataFacts data_facts(const dex::v1::File& file);

// How much work a resolved spec is. Token counts are guesses as good as DataFacts.
struct Workload {
  int64_t tokens_per_pass = 0;  // trained rows, after the validation split
  int64_t validation_tokens = 0;
  int64_t sequences_per_pass = 0;   // rows, or full packs
  int64_t tokens_per_sequence = 0;  // mean
  int64_t tokens_per_update = 0;
  int64_t updates = 0;         // N of method.md §1
  bool updates_given = false;  // by max_steps; else N is a guess too, and only the trainer knows it
};

// "180 updates", or "about 180 updates" where that is a guess.
std::string updates_text(const Workload& work);

// `spec` has max_seq_length, batch_size, n_epochs and packing set. max_steps > 0 is the number of
// updates whatever n_epochs says: passes are repeated as needed.
Workload workload(const dex::v1::FineTuningJobSpec& spec, const DataFacts& training,
                  const DataFacts* validation);

}  // namespace dex::core
