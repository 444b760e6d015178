#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dex/v1/inference.pb.h"

namespace dex::cli {

// Which tokens of several texts stand in the longest common subsequence with the first text; of the
// first, which stand in that with every other one. As the dashboard's comparison has it. Pure.
struct TokenDifference {
  std::vector<std::vector<bool>> same;  // of each text, of each token
  int64_t first = -1;                   // the first place where not all agree; -1: all are equal
};
// At most kLargestTable pairs of tokens are compared beyond the common beginning and end; a middle
// that is larger counts as different as a whole.
inline constexpr size_t kLargestTable = size_t{64} << 20;
TokenDifference token_difference(std::span<const std::vector<int32_t>> texts);

// The text of the tokens with those that are not `same` between `open` and `close`, neighbours
// together. Tokens that are parts of a character ("bytes:\xNN") are marked with it. Pure.
std::string marked_text(const v1::GenerateResponse& reply, const std::vector<bool>& same,
                        const std::string& open, const std::string& close);

}  // namespace dex::cli
