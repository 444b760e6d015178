#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "services/data/validator.h"

namespace dex::data {

// Checks a file of which only this is known: it is text. Is it UTF-8, is there anything but blanks,
// is it no archive (api.md §5, file codes)? What its lines must hold is known to the task that
// reads it. Takes bytes cut anywhere; memory is a few bytes and the first findings. Never blocks.
// Not thread-safe.
class PlainCheck {
 public:
  void feed(std::string_view bytes);
  // The end of the file. Call once.
  Report finish();

 private:
  void look_at_head();
  void look_at(std::string_view text, bool at_end);
  void fault(std::string_view code, int64_t line, int64_t offset, std::string message,
             std::string hint);

  std::string head_;    // the first bytes, until there are enough to tell what the file is
  bool known_ = false;  // head_ was looked at
  std::string tail_;    // a character that the last piece cut, at most 3 bytes
  int64_t bytes_ = 0;   // before tail_
  int64_t line_ = 1;
  bool blank_ = true;
  Report report_;
};

}  // namespace dex::data
