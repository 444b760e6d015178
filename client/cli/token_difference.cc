#include "client/cli/token_difference.h"

#include <algorithm>
#include <string_view>

namespace dex::cli {

namespace {

using Ids = std::span<const int32_t>;

constexpr std::string_view kBytes = "bytes:";  // how a token is written that is not whole UTF-8

// table[i · (m + 1) + j] = length of the longest common subsequence of a from i and b from j.
std::vector<uint16_t> lengths(Ids a, Ids b) {
  const size_t columns = b.size() + 1;
  std::vector<uint16_t> table((a.size() + 1) * columns, 0);
  for (size_t i = a.size(); i-- > 0;) {
    for (size_t j = b.size(); j-- > 0;) {
      const size_t here = i * columns + j;
      table[here] = a[i] == b[j] ? static_cast<uint16_t>(table[here + columns + 1] + 1)
                                 : std::max(table[here + columns], table[here + 1]);
    }
  }
  return table;
}

// Calls back with every pair of places that belong together, in order.
template <typename Pair>
void for_common_tokens(Ids a, Ids b, const Pair& pair) {
  size_t begin = 0, end = 0;
  const size_t shorter = std::min(a.size(), b.size());
  while (begin < shorter && a[begin] == b[begin]) pair(begin, begin), ++begin;
  while (end < shorter - begin && a[a.size() - 1 - end] == b[b.size() - 1 - end]) ++end;
  const Ids left = a.subspan(begin, a.size() - begin - end);
  const Ids right = b.subspan(begin, b.size() - begin - end);
  const size_t columns = right.size() + 1;
  // 16 bits hold every length of a table of this size: its shorter side is at most 8,192 long.
  if (left.size() + 1 <= kLargestTable / columns) {
    const auto table = lengths(left, right);
    for (size_t i = 0, j = 0; i < left.size() && j < right.size();) {
      if (left[i] == right[j])
        pair(begin + i++, begin + j++);
      else if (table[(i + 1) * columns + j] >= table[i * columns + j + 1])
        ++i;
      else
        ++j;
    }
  }
  for (size_t i = end; i > 0; --i) pair(a.size() - i, b.size() - i);
}

int64_t first_difference(std::span<const std::vector<int32_t>> texts) {
  size_t longest = 0;
  for (const auto& text : texts) longest = std::max(longest, text.size());
  for (size_t i = 0; i < longest; ++i) {
    for (const auto& text : texts) {
      if (i >= text.size() || i >= texts[0].size() || text[i] != texts[0][i])
        return static_cast<int64_t>(i);
    }
  }
  return -1;
}

// "bytes:\xe2\x82" → the two bytes.
std::string bytes_of(std::string_view token) {
  std::string bytes;
  for (size_t at = kBytes.size(); at + 4 <= token.size(); at += 4)
    bytes += static_cast<char>(std::stoi(std::string(token.substr(at + 2, 2)), nullptr, 16));
  return bytes;
}

struct Piece {
  std::string text;
  bool same = true;
  bool part = false;  // of a character
};

std::vector<Piece> pieces_of(const v1::GenerateResponse& reply, const std::vector<bool>& same) {
  std::vector<Piece> pieces;
  for (int i = 0; i < reply.logprobs_size(); ++i) {
    const std::string& token = reply.logprobs(i).token();
    const bool part = token.starts_with(kBytes);
    const bool is_same = static_cast<size_t>(i) < same.size() && same[static_cast<size_t>(i)];
    if (part && !pieces.empty() && pieces.back().part) {
      pieces.back().text += bytes_of(token);
      pieces.back().same = pieces.back().same && is_same;
    } else {
      pieces.push_back({part ? bytes_of(token) : token, is_same, part});
    }
  }
  return pieces;
}

}  // namespace

TokenDifference token_difference(std::span<const std::vector<int32_t>> texts) {
  TokenDifference difference;
  for (const auto& text : texts) difference.same.emplace_back(text.size(), false);
  if (texts.empty()) return difference;
  std::vector<size_t> in(texts[0].size(), 0);  // how many of the others have this token
  for (size_t t = 1; t < texts.size(); ++t) {
    for_common_tokens(texts[0], texts[t], [&](size_t a, size_t b) {
      difference.same[t][b] = true;
      ++in[a];
    });
  }
  for (size_t i = 0; i < in.size(); ++i) difference.same[0][i] = in[i] == texts.size() - 1;
  difference.first = first_difference(texts);
  return difference;
}

std::string marked_text(const v1::GenerateResponse& reply, const std::vector<bool>& same,
                        const std::string& open, const std::string& close) {
  std::string text;
  bool is_open = false;
  for (const auto& piece : pieces_of(reply, same)) {
    if (piece.same == is_open) {
      text += is_open ? close : open;
      is_open = !is_open;
    }
    text += piece.text;
  }
  return is_open ? text + close : text;
}

}  // namespace dex::cli
