#include "worker/kernels/attention_work.h"

#include <algorithm>

namespace dex::kernels {
namespace {

int64_t work_of(const AttentionBlock& block, int64_t window) {
  const int64_t from = window == 0 ? 0 : std::max<int64_t>(0, block.begin - window + 1);
  return (block.end - block.begin) * (block.end - from);
}

}  // namespace

std::vector<AttentionBlock> attention_blocks(std::span<const int64_t> bounds, int64_t query_heads,
                                             int64_t key_heads, int64_t block_rows) {
  std::vector<AttentionBlock> blocks;
  const int64_t group = query_heads / key_heads;
  for (size_t document = 0; document + 1 < bounds.size(); ++document) {
    const int64_t rows = bounds[document + 1] - bounds[document];
    for (int64_t head = 0; head < query_heads; ++head) {
      const int64_t segment = static_cast<int64_t>(document) * key_heads + head / group;
      for (int64_t begin = 0; begin < rows; begin += block_rows) {
        blocks.push_back({static_cast<int64_t>(document), head, begin,
                          std::min(rows, begin + block_rows), segment});
      }
    }
  }
  return blocks;
}

std::vector<int64_t> attention_shares(std::span<const AttentionBlock> blocks, int64_t window,
                                      int64_t shares) {
  int64_t total = 0;
  for (const AttentionBlock& block : blocks) total += work_of(block, window);
  std::vector<int64_t> first{0};
  int64_t done = 0, at = 0;
  for (int64_t share = 1; share < shares; ++share) {
    const int64_t wanted = total * share / shares;
    for (; at < static_cast<int64_t>(blocks.size()); ++at) {
      const int64_t work = work_of(blocks[static_cast<size_t>(at)], window);
      if (done + work / 2 >= wanted) break;  // nearer without this block
      done += work;
    }
    first.push_back(at);
  }
  first.push_back(static_cast<int64_t>(blocks.size()));
  return first;
}

}  // namespace dex::kernels
