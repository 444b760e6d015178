#pragma once

#include <span>
#include <string_view>

namespace dex::base {

// The candidate that differs least from `word` by inserted, left out or exchanged letters; empty if
// none is within a third of the word's length. For "did you mean".
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace dex::base
