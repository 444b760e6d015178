#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dex::kernels {

// A block of queries of one query head of one document: what a thread does at a time. Its backward
// pass adds to the gradients of the document's rows of one key head, a "segment".
struct AttentionBlock {
  int64_t document = 0, head = 0;  // query head
  int64_t begin = 0, end = 0;      // rows, counted from the document's first
  int64_t segment = 0;             // document · key heads + key head
};

// All blocks of `bounds`' documents, segment by segment. A pure function.
std::vector<AttentionBlock> attention_blocks(std::span<const int64_t> bounds, int64_t query_heads,
                                             int64_t key_heads, int64_t block_rows);

// Cuts the blocks into `shares` runs of about equal work (rows times the keys they see): the first
// block of each, and blocks.size() last. By the arguments alone, so that what is summed in which
// order does not depend on which thread comes first.
std::vector<int64_t> attention_shares(std::span<const AttentionBlock> blocks, int64_t window,
                                      int64_t shares);

}  // namespace dex::kernels
