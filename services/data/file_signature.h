#pragma once

#include <string>
#include <string_view>

namespace dex::data {

// How many bytes of a file's beginning tell what it is.
inline constexpr size_t kSignatureBytes = 8;

// A file that is something else than UTF-8 text.
struct Signature {
  std::string_view code;  // compressed_file or encoding_utf16; empty: nothing is wrong
  std::string_view message;
  std::string_view hint;  // the command that repairs it
};

// Looks at the first bytes (fewer only if the file is that short).
Signature recognize(std::string_view head);

}  // namespace dex::data
