#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "services/data/validator.h"
#include "services/text/row_encoder.h"

namespace dex::data {

// One sequence as training gets it, for looking at. A row that is left out has one too, without
// ids where it could not be encoded.
struct PreviewedRow {
  int64_t line = 0;
  int64_t offset = 0;     // good rows before its own
  int32_t sequence = 0;   // which of the row's sequences, from 0: more than one only with CHUNK
  int32_t sequences = 1;  // of the row
  text::EncodedRow encoded;
  std::string rendered;      // the text of encoded.ids, valid UTF-8; empty without a tokenizer
  std::string dropped_code;  // why it is left out (api.md §5), of either layer; empty: it is not
  std::string dropped_message;
};

// Rows of a data file as training sees them, by the reader and the encoder of training, while the
// file's bytes come. Memory: a line and the rows shown. Never blocks. Not thread-safe.
class FilePreview {
 public:
  struct Options {
    const text::RowEncoder* encoder = nullptr;   // outlives this object
    const text::Tokenizer* tokenizer = nullptr;  // the encoder's, for `rendered`; may be null
    std::set<int64_t> lines = {};                // which; empty: from `offset` on
    int64_t offset = 0;                          // good rows before the first one shown
    size_t limit = 10;                           // sequences shown; at least 1
  };
  explicit FilePreview(Options options);
  FilePreview(const FilePreview&) = delete;  // its reader points into it
  FilePreview& operator=(const FilePreview&) = delete;

  // The next bytes, cut anywhere.
  void feed(std::string_view bytes) { validator_.feed(bytes); }
  // Nothing that follows will be shown: the rest of the file need not be fed.
  [[nodiscard]] bool done() const { return done_; }
  // What was asked for, by line. A line asked for that is no good row says why. Call once.
  std::vector<PreviewedRow> finish();
  // After finish(): the offset that goes on behind what was shown; 0: the file ends here.
  [[nodiscard]] int64_t next_offset() const { return next_offset_; }

 private:
  Validator::Options reading();
  void take(const Row& row);
  bool show(const Row& row);  // false: there is no room for it

  Options options_;
  Validator validator_;
  std::vector<PreviewedRow> rows_;
  std::set<int64_t> missing_;  // lines asked for and not seen as good rows yet
  int64_t seen_ = 0;           // good rows
  int64_t next_offset_ = 0;
  bool done_ = false;
};

// The text that ids stand for, whatever of it is no whole character as U+FFFD.
std::string text_of(const text::Tokenizer& tokenizer, const std::vector<int32_t>& ids);

}  // namespace dex::data
