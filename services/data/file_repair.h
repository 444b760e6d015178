#pragma once

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"

namespace dex::data {

// Turns bytes into UTF-8 without a byte order mark: UTF-16, with a mark or beginning with ASCII, is
// decoded (a broken pair becomes U+FFFD), everything else stays as it is. Memory: what one push()
// brings. Not thread-safe.
class Utf8Decoder {
 public:
  std::string push(std::string_view bytes);  // the text that is certain now
  std::string finish();                      // the rest
  [[nodiscard]] bool had_mark() const { return had_mark_; }
  [[nodiscard]] bool was_utf16() const { return encoding_ > Encoding::kUtf8; }

 private:
  enum class Encoding { kUnknown, kUtf8, kUtf16Little, kUtf16Big };
  void recognize();
  std::string decode(std::string_view bytes);
  void add_unit(uint16_t unit, std::string& text);

  Encoding encoding_ = Encoding::kUnknown;
  bool had_mark_ = false;
  std::string head_;   // until there are enough bytes to tell the encoding
  std::string odd_;    // the first half of a UTF-16 unit
  uint16_t high_ = 0;  // a high surrogate that waits for its other half; 0: none
};

// Takes apart one JSON array of rows, and joins rows that are spread over several lines: one value
// a line. White space between tokens goes; nothing inside of a string, no
// number and no key is touched. What is no JSON stays as wrong as it was. Not thread-safe.
class RowLines {
 public:
  std::string push(std::string_view text);  // the lines that are certain now
  std::string finish();                     // the rest; the last line gets its end

 private:
  void take(char c, std::string& lines);

  bool begun_ = false;  // something but white space was seen
  bool array_ = false;  // the file is one array
  bool value_ = false;  // the line has something
  bool string_ = false, escaped_ = false;
  int depth_ = 0;  // of brackets below the rows' own level
};

// Writes `from` to `to`, which must not exist, with what can be repaired without a choice: UTF-16
// and a byte order mark, CR LF, one JSON array, pretty-printed rows. The codes of what was (api.md
// §5); empty: `to` has the same bytes. After an error `to` is not there. CANCELLED if stopped.
// Blocks on the disk, reads the file twice.
base::Result<std::vector<std::string>> repair_file(const std::filesystem::path& from,
                                                   const std::filesystem::path& to,
                                                   std::stop_token stop = {});

}  // namespace dex::data
