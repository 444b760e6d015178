#include "worker/serve/block_manager.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace dex::serve {
namespace {

// SplitMix64's finaliser over a running value: well mixed and cheap; equality is decided by the
// tokens themselves.
uint64_t mix(uint64_t hash, uint64_t value) {
  uint64_t x = hash + 0x9e3779b97f4a7c15U + value;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

uint64_t chain(uint64_t parent, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) parent = mix(parent, static_cast<uint32_t>(token));
  return parent;
}

uint64_t root(uint64_t adapter) {
  return mix(0, adapter);
}

}  // namespace

BlockManager::BlockManager(const Options& options) : options_(options) {
  if (options.block_count < 1 || options.block_tokens < 1) {
    throw std::runtime_error("[block_manager] block_count and block_tokens must be ≥ 1, got " +
                             std::to_string(options.block_count) + " and " +
                             std::to_string(options.block_tokens));
  }
  blocks_.resize(static_cast<size_t>(options.block_count));
  for (int32_t i = 0; i < options.block_count; ++i) append_free(i);
}

std::optional<BlockManager::Lease> BlockManager::acquire(uint64_t adapter,
                                                         std::span<const int32_t> tokens,
                                                         int32_t reusable) {
  const auto size = static_cast<size_t>(options_.block_tokens);
  const int32_t needed = blocks_for(static_cast<int32_t>(tokens.size()));
  Lease lease;
  lease.chain = root(adapter);
  // Shared blocks first. Full ones only, and never the one that holds the last token.
  int32_t from_free = 0;  // shared blocks that nobody holds leave the free list too
  const auto most = static_cast<size_t>(std::max(0, reusable));
  while ((lease.blocks.size() + 1) * size < tokens.size() &&
         (lease.blocks.size() + 1) * size <= most) {
    const auto block = tokens.subspan(lease.blocks.size() * size, size);
    const int32_t index = find(lease.chain, block);
    if (index < 0) break;
    from_free += blocks_[index].holders == 0 ? 1 : 0;
    lease.chain = blocks_[index].hash;
    lease.blocks.push_back(index);
  }
  const auto shared = static_cast<int32_t>(lease.blocks.size());
  if (needed - shared + from_free > free_count_) return std::nullopt;
  for (const int32_t index : lease.blocks) hold(index);
  for (int32_t i = shared; i < needed; ++i) lease.blocks.push_back(take_oldest());
  lease.cached_tokens = shared * options_.block_tokens;
  lease.published = shared;
  return lease;
}

bool BlockManager::extend(Lease& lease, int32_t tokens) {
  const int32_t more = blocks_for(tokens) - static_cast<int32_t>(lease.blocks.size());
  if (more > free_count_) return false;
  for (int32_t i = 0; i < more; ++i) lease.blocks.push_back(take_oldest());
  return true;
}

void BlockManager::publish(Lease& lease, std::span<const int32_t> tokens, int32_t computed) {
  const auto size = static_cast<size_t>(options_.block_tokens);
  for (; (lease.published + 1) * options_.block_tokens <= computed; ++lease.published) {
    const auto content = tokens.subspan(static_cast<size_t>(lease.published) * size, size);
    const uint64_t parent = std::exchange(lease.chain, chain(lease.chain, content));
    // Two sequences may compute the same prefix at the same time: the first to finish is the one
    // that is shared.
    if (!by_hash_.try_emplace(lease.chain, lease.blocks[lease.published]).second) continue;
    Block& block = blocks_[lease.blocks[lease.published]];
    block.known = true;
    block.hash = lease.chain;
    block.parent = parent;
    block.tokens.assign(content.begin(), content.end());
  }
}

void BlockManager::release(Lease lease) {
  // The end of a sequence is freed first and so reused first: its beginning is what others are
  // likely to share.
  for (auto index = lease.blocks.rbegin(); index != lease.blocks.rend(); ++index) {
    if (--blocks_[*index].holders == 0) append_free(*index);
  }
}

double BlockManager::usage_ratio() const {
  return 1.0 - static_cast<double>(free_count_) / static_cast<double>(blocks_.size());
}

int32_t BlockManager::find(uint64_t parent, std::span<const int32_t> tokens) const {
  const auto found = by_hash_.find(chain(parent, tokens));
  if (found == by_hash_.end()) return -1;
  const Block& block = blocks_[found->second];
  return block.parent == parent && std::ranges::equal(block.tokens, tokens) ? found->second : -1;
}

int32_t BlockManager::take_oldest() {
  const int32_t index = oldest_;
  Block& block = blocks_[index];
  if (block.known) {
    by_hash_.erase(block.hash);
    block.known = false;
  }
  hold(index);
  return index;
}

void BlockManager::hold(int32_t index) {
  if (blocks_[index].holders++ == 0) unlink(index);
}

void BlockManager::unlink(int32_t index) {
  Block& block = blocks_[index];
  (block.previous < 0 ? oldest_ : blocks_[block.previous].next) = block.next;
  (block.next < 0 ? newest_ : blocks_[block.next].previous) = block.previous;
  block.previous = block.next = -1;
  --free_count_;
}

void BlockManager::append_free(int32_t index) {
  Block& block = blocks_[index];
  block.previous = newest_;
  block.next = -1;
  (newest_ < 0 ? oldest_ : blocks_[newest_].next) = index;
  newest_ = index;
  ++free_count_;
}

}  // namespace dex::serve
