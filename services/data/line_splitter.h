#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace dex::data {

// One line of a file, without its line end. The bytes are valid during the callback only.
struct Line {
  int64_t number = 1;                // from 1
  int64_t byte_offset = 0;           // of its first byte in the file
  std::string_view bytes;            // of a line that is too long: its beginning
  int64_t size = 0;                  // in bytes; more than bytes.size() if too long
  bool has_line_end = true;          // false: the file ends here
  bool has_carriage_return = false;  // ended by CR LF; the CR is not among the bytes
  bool too_long = false;
};

// Cuts a stream of bytes into lines at LF. Keeps at most `max_line_bytes` of an unfinished line, so
// memory is bounded whatever comes; lines inside one piece are not copied. Not thread-safe.
class LineSplitter {
 public:
  using Sink = std::function<void(const Line&)>;
  LineSplitter(int64_t max_line_bytes, Sink sink);

  void feed(std::string_view bytes);
  // The last line, if the stream did not end with LF.
  void finish();
  // Bytes that belong to the file but to no line (a byte order mark).
  void skip(int64_t bytes) { offset_ += bytes; }

 private:
  void emit(std::string_view bytes, bool has_line_end);

  int64_t max_line_bytes_;
  Sink sink_;
  std::string pending_;       // beginning of the unfinished line
  int64_t pending_size_ = 0;  // its true size so far
  char last_ = '\0';          // its last byte so far
  int64_t number_ = 1;
  int64_t offset_ = 0;  // of the unfinished line
};

}  // namespace dex::data
