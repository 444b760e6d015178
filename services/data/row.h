#pragma once

#include <cstdint>
#include <string>

#include "services/text/row.h"

namespace dex::data {

// One good row of a data file.
struct Row {
  int64_t line = 0;               // 1-based
  int64_t byte_offset = 0;        // of its line
  std::string id, tag, language;  // as the user gave them; empty: absent
  text::Row content;
  int64_t text_bytes = 0;  // of the texts that training reads; 0 for a row of ids
};

}  // namespace dex::data
