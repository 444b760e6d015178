#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/data/preset_checks.h"
#include "services/data/token_layer.h"
#include "services/data/validator.h"

namespace dex::data {

// What both layers of api.md §5 say of a whole file.
struct FileReport {
  Report structure;
  std::optional<TokenStatistics> tokens;  // absent: the structure layer alone was asked
  // Rows that training leaves out, by the code of their first fault: what the token layer drops,
  // and what the structure layer refuses (of its kept faults).
  std::map<std::string, Dropped> dropped;
  std::vector<Finding> findings;  // of both layers, by line
  std::map<std::string, int64_t, std::less<>> finding_counts;
  // OK, or FAILED_PRECONDITION FILE_INVALID with the codes, their lines and the first fault in
  // words.
  base::Status verdict;
};

// Checks a data file while its bytes come, with one code for uploads, previews, the trainer and
// dexctl without a server. With an encoder also the token layer and the preset's checks. Memory is
// that of the Validator. Never blocks. Not thread-safe.
class FileCheck {
 public:
  struct Options {
    Validator::Options reading;                  // its on_row is not used
    const text::RowEncoder* encoder = nullptr;   // outlives this object; null: structure alone
    const text::Tokenizer* tokenizer = nullptr;  // the encoder's; may be null (rows of ids)
    int32_t max_seq_length = 0;                  // the encoder's, for the preset's checks; 0: none
    std::string preset = {};                     // preset_checks.h; empty: none
    // Of all rows, what both layers together may leave out (skip_budget_ratio of api.md §3).
    double skip_budget_ratio = 0.01;
    // Gets each good row with what training gets of it: nothing where it is dropped. May be empty.
    std::function<void(const Row&, std::vector<text::EncodedRow>)> on_row;
  };
  explicit FileCheck(Options options);
  FileCheck(const FileCheck&) = delete;  // the readers of its layers point into it
  FileCheck& operator=(const FileCheck&) = delete;

  // The next bytes, cut anywhere.
  void feed(std::string_view bytes) { validator_.feed(bytes); }
  // The end of the file. Call once; afterwards the object is spent.
  FileReport finish();

  int64_t rows() const { return rows_; }      // good ones so far
  int64_t tokens() const { return tokens_; }  // of all their sequences; 0 without an encoder

 private:
  Validator::Options reading();
  void take(const Row& row);
  base::Status judge(const FileReport& report) const;

  Options options_;
  Findings findings_;  // of the token layer
  std::optional<TokenLayer> layer_;
  PresetChecks preset_;
  Validator validator_;
  int64_t rows_ = 0, tokens_ = 0;
};

}  // namespace dex::data
