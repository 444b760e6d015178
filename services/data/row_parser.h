#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "services/data/findings.h"
#include "services/data/json_line.h"
#include "services/data/row.h"

namespace dex::data {

// Reads one line after the other into rows and says what is wrong with them: the line and content
// codes of api.md §5. The format is the given one, else that of the first line that has one. Not
// thread-safe.
class RowParser {
 public:
  // `findings` outlives this object.
  RowParser(std::optional<text::RowFormat> format, Findings& findings);

  enum class Kind {
    kRow,     // a good row
    kBad,     // reported; not a row
    kHeader,  // the first line of a tokens file, {"tokenizer_sha256": …}
    kCutOff,  // invalid JSON only because the line ends too early; nothing is reported yet
  };
  struct Outcome {
    Kind kind = Kind::kBad;
    std::optional<Row> row;
    std::optional<JsonLine::Fault> cut;  // of kCutOff: what would have been reported
  };

  // `line` is valid UTF-8 without a line end. `hold_cut_off`: answer kCutOff instead of reporting.
  Outcome parse(int64_t number, int64_t byte_offset, std::string_view line,
                bool hold_cut_off = false);
  // Reports a fault that was held back.
  void report(int64_t number, int64_t byte_offset, std::string_view line,
              const JsonLine::Fault& fault, std::string_view code = {}, std::string hint = {});

  std::optional<text::RowFormat> format() const { return format_; }
  const std::string& tokenizer_sha256() const {
    return tokenizer_sha256_;
  }  // of the header line, or empty
  // No object had the keys of any format, and there was at least one: its keys, "a, b, c", and its
  // line.
  bool format_is_unknown() const { return !format_ && !seen_format_ && unknown_line_ > 0; }
  const std::string& unknown_keys() const { return unknown_keys_; }
  int64_t unknown_line() const { return unknown_line_; }

 private:
  using Value = JsonLine::Value;

  bool is_header(Value root);
  std::optional<text::RowFormat> format_of(Value root);
  void report_unknown_format(Value root);
  void read_content_of(Value root, Row& row);
  void read_common(Value root, Row& row);
  void read_chat(Value root, Row& row);
  text::Message read_message(size_t index, Value value);
  std::string read_content(const std::string& path, Value value);
  void read_weight(const std::string& path, Value value, text::Message& message);
  void check_turns(Value root, const std::vector<text::Message>& messages);
  void read_pair(Value root, Row& row);
  void read_text(Value root, Row& row);
  void read_tokens(Value root, Row& row);
  void read_labels(Value value, Row& row);
  void read_loss_weights(Value value, Row& row);
  std::optional<std::string> read_string(Value root, std::string_view key, bool may_be_empty);
  void scan(const std::string& path, Value value, std::string_view text);

  // Reports a finding at `value` of the current line.
  void error(std::string_view code, Value at, std::string path, std::string message,
             std::string hint = "");
  void warning(std::string_view code, Value at, std::string path, std::string message,
               std::string hint = "");
  void add(Severity severity, std::string_view code, size_t offset, std::string path,
           std::string message, std::string hint);

  std::optional<text::RowFormat> format_;
  Findings& findings_;
  std::string tokenizer_sha256_;
  std::string unknown_keys_;
  int64_t unknown_line_ = 0;
  bool seen_row_ = false;     // a line that is no header
  bool seen_format_ = false;  // a line whose keys tell a format, good or bad

  // The line being parsed.
  int64_t number_ = 0;
  int64_t byte_offset_ = 0;
  std::string_view line_;
  JsonLine json_;
};

}  // namespace dex::data
