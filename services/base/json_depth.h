#pragma once

#include <cstddef>
#include <string_view>

namespace dex::base {

// How deep JSON of ours goes at most; nothing that is written here needs a third of it.
inline constexpr size_t kDeepestJson = 32;

// Whether arrays and objects of a JSON text are nested more than `deepest` deep. Ask before a
// parser whose values are copied, compared or shown by calls that go down level by level: a
// megabyte of brackets is more than the stack holds. Says nothing of whether the text is JSON.
// Allocates nothing.
bool nests_deeper(std::string_view json, size_t deepest = kDeepestJson);

}  // namespace dex::base
