#pragma once

#include <exception>
#include <new>
#include <string_view>

namespace dex::model {

// Whether it is an allocation that failed: C++'s, or LibTorch's, which files without its headers
// (performance.md §7) know by its text alone.
inline bool is_out_of_memory(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         std::string_view(error.what()).find("DefaultCPUAllocator") != std::string_view::npos;
}

}  // namespace dex::model
