#pragma once

#include <string>
#include <string_view>

#include "services/text/ffi/dex_text_ffi.h"

// Private to this room: C++ values as the C border wants them.
namespace dex::text::detail {

inline DexText borrow(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Copies into `out`, which outlives the call.
inline DexSink into(std::string& out) {
  return {&out, [](void* context, const uint8_t* data, size_t size) {
            static_cast<std::string*>(context)->assign(reinterpret_cast<const char*>(data), size);
          }};
}

}  // namespace dex::text::detail
